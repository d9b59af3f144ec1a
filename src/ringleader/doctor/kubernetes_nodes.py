"""Reads what a cluster says of its nodes, of a namespace and of networks: as little as the checks need."""

from __future__ import annotations

from collections.abc import Sequence

from ringleader.fabric.cluster_facts import ClusterFacts, NicNeeds, NodeFacts, Taint
from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import NAMESPACES, Resource
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.object_fields import labels_of, map_in, maps_in, metadata_of, text_in
from ringleader.kubernetes.mpijob import quantities
from ringleader.kubernetes.rdma.request import NicAllocation
from ringleader.kubernetes.why_not_running import refused

NODES = Resource(group="", version="v1", plural="nodes", kind="Node", namespaced=False)
NETWORKS = Resource(
    group="k8s.cni.cncf.io",
    version="v1",
    plural="network-attachment-definitions",
    kind="NetworkAttachmentDefinition",
)
ENFORCE = "pod-security.kubernetes.io/enforce"


async def read_cluster(
    cluster: Cluster, *, namespace: str, selector: str, networks: Sequence[str]
) -> ClusterFacts:
    """Return what the checks read. Raises RefusedError where nodes cannot be listed.

    ``selector``: of labels; empty: all nodes. A namespace or a network that may not be read is not known.
    """
    try:
        listing = await cluster.list(NODES, labels=selector)
    except ApiError as error:
        raise refused(error, doing="list", resource=NODES, name="", namespace=namespace) from error
    found = {name: await _network(cluster, name, namespace) for name in dict.fromkeys(networks)}
    return ClusterFacts(
        namespace=namespace,
        nodes=tuple(node_facts(one) for one in listing.items),
        selector=selector,
        pod_security=await _pod_security(cluster, namespace),
        networks=found,
    )


async def _pod_security(cluster: Cluster, namespace: str) -> str | None:
    try:
        return labels_of(await cluster.get(NAMESPACES, namespace)).get(ENFORCE, "")
    except ApiError:
        return None


async def _network(cluster: Cluster, name: str, namespace: str) -> bool | None:
    place, slash, own = name.partition("@")[0].rpartition("/")
    try:
        await cluster.get(NETWORKS, own, place if slash else namespace)
    except ApiError as error:
        return False if error.is_missing else None
    return True


def node_facts(document: Object) -> NodeFacts:
    """Return a node as a value; amounts that cannot be read are left out."""
    spec, status = map_in(document, "spec"), map_in(document, "status")
    ready = {text_in(one, "type"): text_in(one, "status") for one in maps_in(status, "conditions")}
    info = map_in(status, "nodeInfo")
    allocatable: dict[str, float] = {}
    for name, amount in map_in(status, "allocatable").items():
        try:
            allocatable[str(name)] = float(quantities.value(amount))
        except (ValueError, OverflowError):
            continue
    return NodeFacts(
        name=str(metadata_of(document).get("name", "")),
        ready=ready.get("Ready") == "True",
        schedulable=not spec.get("unschedulable"),
        allocatable=allocatable,
        labels=dict(labels_of(document)),
        taints=tuple(
            Taint(key=text_in(one, "key"), value=text_in(one, "value"), effect=text_in(one, "effect"))
            for one in maps_in(spec, "taints")
        ),
        kubelet=text_in(info, "kubeletVersion"),
        runtime=text_in(info, "containerRuntimeVersion"),
        system=text_in(info, "osImage"),
        kernel=text_in(info, "kernelVersion"),
    )


def needs_of(allocation: NicAllocation) -> NicNeeds:
    """Return what a Pod needs that gets these NICs."""
    profile = allocation.profile
    refused_rights = {
        "IPC_LOCK": profile.ipc_lock,
        "privileged containers": allocation.privileged,
        "hostPath": bool(allocation.host_paths),
        "hostNetwork": profile.host_network,
    }
    return NicNeeds(
        profile=profile.name,
        resource=allocation.resource,
        count=allocation.count,
        more={name: float(quantities.value(amount)) for name, amount in profile.more}
        if allocation.resource
        else {},
        known_resources=profile.seen,
        networks=allocation.networks,
        forbidden_below_privileged=tuple(word for word, needed in refused_rights.items() if needed),
        is_mellanox=profile.is_mellanox,
    )
