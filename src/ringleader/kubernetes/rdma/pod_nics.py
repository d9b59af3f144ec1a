"""What a Pod becomes that gets NICs, the claims that it needs, and what its user should know of it. Pure.

Everything is added to what stands there; where a user has said the same thing, his word is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ringleader.kubernetes.mpijob.object_metadata import JOB_NAME, JOB_ROLE, Document, document
from ringleader.render.rdma_profiles import Counts, Pairs, Spread, Way

if TYPE_CHECKING:
    from ringleader.kubernetes.rdma.request import NicAllocation

NETWORKS = "k8s.v1.cni.cncf.io/networks"
"""Annotation of a Pod: the networks that Multus attaches besides the cluster's."""
HOSTNAME = "kubernetes.io/hostname"
SHM = "/dev/shm"
IPC_LOCK = "IPC_LOCK"
SSH_PORT = "ssh"
"""Name of the port that a worker's sshd listens on."""
CLAIM = "rdma"
"""The claim's name in its Pod."""
SAME_ROOT = "resource.kubernetes.io/pcieRoot"
HAS_RDMA = 'device.driver == "dra.net" && device.attributes["dra.net"].rdma == true'
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def add_nics(pod: Document, allocation: NicAllocation, *, job: str, role: str) -> None:
    """Give NICs to a Pod, or a Pod template, of a job.

    ``role`` is that of the Pods among which this one is spread; empty: all Pods of the job.
    """
    spec, first = pod["spec"], pod["spec"]["containers"][0]
    if allocation.networks:
        meta = pod.setdefault("metadata", {})
        attached = {NETWORKS: ", ".join(allocation.networks)}
        meta["annotations"] = {**attached, **(meta.get("annotations") or {})}
    _resources(spec, first, allocation, job)
    _rights(first, allocation)
    for index, path in enumerate(allocation.host_paths):
        _mount(spec, first, f"rdma-{index}", path, {"hostPath": {"path": path, "type": "Directory"}})
    if allocation.shm_size:
        _mount(spec, first, "shm", SHM, {"emptyDir": {"medium": "Memory", "sizeLimit": allocation.shm_size}})
    if allocation.profile.host_network:
        spec["hostNetwork"] = True
        # The node's resolver does not know the cluster's names.
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    if allocation.ssh_port:
        # Declared, it is a port of the host that the scheduler gives to one Pod of a node.
        _declare(first, allocation.ssh_port)
    if allocation.node_labels:
        _require(spec, allocation.node_labels)
    _spread(spec, allocation.spread, {JOB_NAME: job, **({JOB_ROLE: role} if role else {})})


def add_environment(container: Document, env: Pairs) -> None:
    """Add variables that the container has not got yet."""
    has = {one.get("name") for one in container.get("env") or ()}
    added = [{"name": name, "value": value} for name, value in env if name not in has]
    if added:
        container["env"] = [*(container.get("env") or ()), *added]


def _resources(spec: Document, first: Document, allocation: NicAllocation, job: str) -> None:
    amounts = {}
    if allocation.resource:
        amounts = {allocation.resource: str(allocation.count), **dict(allocation.profile.more)}
    is_claimed = allocation.profile.way is Way.CLAIM
    if not amounts and not is_claimed:
        return
    resources = dict(first.get("resources") or {})
    for part in ("requests", "limits") if amounts else ():
        # Extended resources and huge pages are never overcommitted: both must say the same.
        resources[part] = {**(resources.get(part) or {}), **_new(amounts, resources)}
    if is_claimed:
        named = {"name": CLAIM}
        source = allocation.claim_template or template_name(job)
        resources["claims"] = _named([*(resources.get("claims") or ()), named])
        claimed = {**named, "resourceClaimTemplateName": source}
        spec["resourceClaims"] = _named([*(spec.get("resourceClaims") or ()), claimed])
    first["resources"] = resources


def _named(items: list[Document]) -> list[Document]:
    """Return the items, the first of each name."""
    return list({one.get("name"): one for one in reversed(items)}.values())[::-1]


def _new(amounts: dict[str, str], resources: Document) -> dict[str, Any]:
    """Return the amounts; of what the user asks for himself, his own."""
    said = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {name: said.get(name, amount) for name, amount in amounts.items()}


def _rights(first: Document, allocation: NicAllocation) -> None:
    if not allocation.profile.ipc_lock:
        return
    rights = dict(first.get("securityContext") or {})
    if allocation.privileged:
        rights["privileged"] = True
    capabilities = dict(rights.get("capabilities") or {})
    has = list(capabilities.get("add") or ())
    capabilities["add"] = has if IPC_LOCK in has or "ALL" in has else [*has, IPC_LOCK]
    first["securityContext"] = {**rights, "capabilities": capabilities}


def _mount(spec: Document, first: Document, name: str, path: str, source: Document) -> None:
    mounts = first.get("volumeMounts") or ()
    if any(str(one.get("mountPath", "")).rstrip("/") == path for one in mounts):
        return
    taken = {one.get("name") for one in spec.get("volumes") or ()}
    while name in taken:
        name = f"{name}-rdma"
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": name, **source}]
    first["volumeMounts"] = [*mounts, {"name": name, "mountPath": path}]


def _declare(first: Document, port: int) -> None:
    ports = list(first.get("ports") or ())
    if not any(one.get("name") == SSH_PORT or one.get("containerPort") == port for one in ports):
        first["ports"] = [*ports, {"name": SSH_PORT, "containerPort": port, "protocol": "TCP"}]


def _require(spec: Document, labels: Pairs) -> None:
    """Let the Pod stand on nodes with these labels only, whatever else its affinity says."""
    wanted = [{"key": key, "operator": "In", "values": [value]} for key, value in labels]
    affinity = dict(spec.get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    required = dict(of_nodes.get(_REQUIRED) or {})
    # Terms are alternatives: each must ask for the labels.
    terms: list[Document] = list(required.get("nodeSelectorTerms") or ({},))
    required["nodeSelectorTerms"] = [
        {**term, "matchExpressions": _joined(term.get("matchExpressions"), wanted)} for term in terms
    ]
    of_nodes[_REQUIRED] = required
    spec["affinity"] = {**affinity, "nodeAffinity": of_nodes}


def _spread(spec: Document, spread: Spread, labels: dict[str, str]) -> None:
    chosen = {"labelSelector": {"matchLabels": labels}, "topologyKey": HOSTNAME}
    if spread is Spread.EVEN:
        rule = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", **chosen}
        rules = spec.get("topologySpreadConstraints") or ()
        # Kubernetes takes one rule for a topology and what becomes of Pods that break it.
        if not any(_breadth(one) == _breadth(rule) for one in rules):
            spec["topologySpreadConstraints"] = [*rules, rule]
    elif spread is Spread.APART:
        affinity = dict(spec.get("affinity") or {})
        apart = dict(affinity.get("podAntiAffinity") or {})
        apart[_REQUIRED] = _joined(apart.get(_REQUIRED), [chosen])
        spec["affinity"] = {**affinity, "podAntiAffinity": apart}


def _breadth(rule: Document) -> tuple[Any, Any]:
    return rule.get("topologyKey"), rule.get("whenUnsatisfiable")


def _joined(there: Any, new: list[Document]) -> list[Document]:
    """Return a list with what it has not got yet."""
    has = list(there or ())
    return [*has, *(one for one in new if one not in has)]


def template_name(job: str) -> str:
    """Return the name of a job's own template."""
    return f"{job}-rdma"


def template(allocation: NicAllocation, *, job: str, namespace: str) -> Document:
    """Return the ResourceClaimTemplate of a job, which is in the job's namespace (empty: not said).

    One claim holds all that a worker gets: a constraint for each pair says that its two devices are below one
    PCIe root. NICs are recognized by the attribute ``rdma`` of the driver ``dra.net``.
    """
    devices: Document = {
        "requests": [one for index in range(allocation.count) for one in _requests(allocation, index)]
    }
    if allocation.gpus:
        devices["constraints"] = [
            {"requests": [f"gpu-{index}", f"nic-{index}"], "matchAttribute": SAME_ROOT}
            for index in range(allocation.count)
        ]
    place = {"namespace": namespace} if namespace else {}
    meta, spec = {"name": template_name(job), **place}, {"spec": {"devices": devices}}
    return document("resource.k8s.io/v1", "ResourceClaimTemplate", meta, spec=spec)


def _requests(allocation: NicAllocation, index: int) -> list[Document]:
    gpu = {"name": f"gpu-{index}", "exactly": {"deviceClassName": allocation.gpu_class, "count": 1}}
    nic = {
        "name": f"nic-{index}",
        "exactly": {
            "deviceClassName": allocation.nic_class,
            "count": 1,
            "selectors": [{"cel": {"expression": HAS_RDMA}}],
        },
    }
    return [gpu, nic] if allocation.gpus else [nic]


def advice_on(allocation: NicAllocation, *, is_root: bool | None) -> tuple[str, ...]:
    """Return the remarks, one sentence each. ``is_root``: the container's user is 0; ``None``: not known."""
    profile = allocation.profile
    found = []
    if profile.counts is Counts.NICS and not allocation.is_counted:
        found.append(f"one NIC for each worker, as nothing else was asked for ({allocation.resource})")
    if profile.advice:
        found.append(profile.advice)
    if profile.shm_size and not allocation.shm_size:
        found.append("/dev/shm stays at the runtime's 64 MiB, and NCCL fails to extend it there")
    if profile.ipc_lock and not allocation.privileged:
        found.append(_memory_lock(is_root))
        found.append(
            "namespaces of the Pod security levels baseline and restricted refuse IPC_LOCK: kubectl label "
            "namespace NAMESPACE pod-security.kubernetes.io/enforce=privileged"
        )
    if allocation.privileged:
        found.append(
            "the workers are privileged and see the host's devices: only the Pod security level privileged "
            "allows it"
        )
    return tuple(found)


def runs_as_root(spec: Mapping[str, Any]) -> bool | None:
    """Return whether a Pod's first container runs as user 0; ``None``: only its image knows."""
    rights = {**(spec.get("securityContext") or {}), **(spec["containers"][0].get("securityContext") or {})}
    if rights.get("runAsUser") is not None:
        return bool(rights["runAsUser"] == 0)
    return False if rights.get("runAsNonRoot") else None


def _memory_lock(is_root: bool | None) -> str:
    if is_root is False:
        return (
            "IPC_LOCK is without effect here: the container's user is not root, Kubernetes has no field for "
            "ulimit -l, and registering memory fails with 'Cannot allocate memory'. Run as root, or set "
            "LimitMEMLOCK=infinity for the nodes' container runtime"
        )
    return (
        "IPC_LOCK works for root only; where the image's user is another, set LimitMEMLOCK=infinity for the "
        "nodes' container runtime (Kubernetes has no field for ulimit -l)"
    )
