"""Checks of a Kubernetes cluster: what its nodes advertise against what Pods with NICs need. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from ringleader.fabric.check_result import CheckResult, failed, passed, skipped, unless, warned
from ringleader.fabric.checks.check import Found, results_of
from ringleader.fabric.cluster_facts import ClusterFacts, NicNeeds, NodeFacts

GPU = "nvidia.com/gpu"
FEATURE = "feature.node.kubernetes.io"
NFD = (
    (f"{FEATURE}/rdma.capable", f"{FEATURE}/rdma.available"),
    (f"{FEATURE}/custom-rdma.capable", f"{FEATURE}/custom-rdma.available"),
)
"""Labels of node-feature-discovery since 0.13, and before."""
MOFED = "network.nvidia.com/operator.mofed.wait"
"""``false`` where NVIDIA's network operator has loaded the NIC's driver."""
ZONE = "topology.kubernetes.io/zone"
IGNORED_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Kubernetes sets them itself where a node is not ready, which ``kubernetes.ready`` reports."""


def judge_cluster(facts: ClusterFacts, needs: NicNeeds) -> tuple[CheckResult, ...]:
    """Return the verdicts of all checks; without a node only that there is none."""
    if not facts.nodes:
        chosen = f"no node has the label {facts.selector}" if facts.selector else "the cluster has no node"
        return (failed(chosen, id="kubernetes.nodes", remedy="kubectl get nodes --show-labels"),)
    found = {id: results_of(judge(facts, needs)) for id, judge in JUDGES.items()}
    return tuple(
        dataclasses.replace(one, id=f"kubernetes.{id}") for id, results in found.items() for one in results
    )


def _names(nodes: Iterable[NodeFacts]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _ready(facts: ClusterFacts, needs: NicNeeds) -> Found:
    down = _names(node for node in facts.nodes if not node.ready)
    cordoned = _names(node for node in facts.nodes if node.ready and not node.schedulable)
    why, uncordon = "kubectl describe node: its conditions say why", "kubectl uncordon, once whoever cordoned"
    bad = [failed("not ready", remedy=why, hosts=down)] if down else []
    bad += [warned("cordoned", remedy=f"{uncordon} it agrees", hosts=cordoned)] if cordoned else []
    return unless(bad, f"{len(facts.nodes)} nodes are ready")


def _nics(facts: ClusterFacts, needs: NicNeeds) -> Found:
    """Judge the extended resource of the NICs, node by node."""
    if not needs.resource:
        return skipped(f"the profile {needs.profile} takes no extended resource")
    amounts = {node.name: int(node.allocatable.get(needs.resource, 0)) for node in facts.nodes}
    poor = {name: str(amount) for name, amount in amounts.items() if amount < needs.count}
    expected = f"{needs.count} {needs.resource}"

    bad = []
    for amount, hosts in _by_value(poor):
        nodes = [node for node in facts.nodes if node.name in hosts]
        few = "kubectl describe node: what failed there"
        remedy = _resource_remedy(nodes, needs) if amount == "0" else few
        seen = f"{amount} {needs.resource} allocatable"
        bad.append(failed(seen, expected=expected, remedy=remedy, hosts=hosts))
    counts = ", ".join(sorted({str(amount) for amount in amounts.values()}))
    return bad or passed(f"{counts} {needs.resource} on each node", expected=expected)


def _resource_remedy(nodes: Iterable[NodeFacts], needs: NicNeeds) -> str:
    """Return what to do where a node has none of the resource: name the one that it has."""
    there = {name for node in nodes for name, amount in node.allocatable.items() if amount > 0}
    alike = sorted(name for name in there if "/" in name and _looks_like_nics(name))
    names = [name for name in needs.known_resources if name in there and name != needs.resource]
    found = names or [name for name in alike if name != needs.resource]
    if found:
        return f"there it is called {', '.join(found)}: --rdma-resource {found[0]}, or another profile"
    return "install the NICs' device plugin, or see the log of its Pod on this node"


def _looks_like_nics(name: str) -> bool:
    return name.startswith(("rdma/", "mellanox.com/", "aliyun/erdma", "vpc.amazonaws.com/efa")) or any(
        word in name for word in ("rdma", "hostdev", "mlnx", "sriov", "hca")
    )


def _more(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    remedy = "reserve huge pages on the node before the kubelet starts (vm.nr_hugepages)"
    for resource, amount in needs.more.items():
        poor = _names(node for node in facts.nodes if node.allocatable.get(resource, 0) < amount)
        expected = f"{amount:,.0f} {resource}"
        if poor:
            seen = "less is allocatable"
            yield failed(seen, expected=expected, remedy=remedy, subject=resource, hosts=poor)
        else:
            yield passed("on each node", expected=expected, subject=resource)


def _gpus(facts: ClusterFacts, needs: NicNeeds) -> Found:
    amounts = {node.name: f"{node.allocatable.get(GPU, 0):.0f}" for node in facts.nodes}
    return _alike(amounts, f"{GPU} allocatable", "see the GPU device plugin's Pod on that node")


def _taints(facts: ClusterFacts, needs: NicNeeds) -> Found:
    """Tell what Pods must tolerate; a resource's own taint is tolerated by whoever asks for the resource."""
    found: dict[str, list[str]] = {}
    for node in facts.nodes:
        for taint in node.taints:
            own = taint.key in (needs.resource, GPU)
            if taint.effect != "PreferNoSchedule" and not own and not taint.key.startswith(IGNORED_TAINTS):
                found.setdefault(str(taint), []).append(node.name)
    bad = (
        warned(text, remedy=f"jobs need --toleration {text}", hosts=tuple(hosts))
        for text, hosts in found.items()
    )
    return unless(bad, "none that keeps these Pods away")


def _pod_security(facts: ClusterFacts, needs: NicNeeds) -> CheckResult:
    level, refused = facts.pod_security, ", ".join(needs.forbidden_below_privileged)
    if not refused:
        return skipped(f"the profile {needs.profile} needs no special right")
    if level is None:
        return skipped(f"the namespace {facts.namespace} is not readable")
    if level in ("baseline", "restricted"):
        label = "pod-security.kubernetes.io/enforce=privileged"
        return failed(
            f"{facts.namespace} enforces {level}, which refuses {refused}",
            expected="privileged",
            remedy=f"kubectl label namespace {facts.namespace} --overwrite {label}",
        )
    return passed(f"{facts.namespace} {f'enforces {level}' if level else 'sets no level'}")


def _networks(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    if not needs.networks:
        yield skipped("no network of Multus is asked for")
    for name in dict.fromkeys(needs.networks):
        there = facts.networks.get(name)
        if there is None:
            what = "not readable: get on network-attachment-definitions is not allowed"
            yield skipped(what, subject=name)
        elif there:
            yield passed("it is there", subject=name)
        else:
            remedy = "kubectl get network-attachment-definitions -A; NAMESPACE/NAME names one elsewhere"
            yield failed(f"no such network, seen from {facts.namespace}", subject=name, remedy=remedy)


def _nfd(facts: ClusterFacts, needs: NicNeeds) -> CheckResult:
    """Tell what node-feature-discovery says; without it there is nothing to judge."""
    if not needs.is_mellanox:
        return skipped("its labels mean NICs of the PCI vendor 15b3 alone")
    if not any(name in node.labels for node in facts.nodes for pair in NFD for name in pair):
        return skipped("no node has labels of node-feature-discovery for RDMA")
    lacking = _names(
        node
        for node in facts.nodes
        if not any(all(node.labels.get(name) == "true" for name in pair) for pair in NFD)
    )
    if not lacking:
        return passed("RDMA is capable and available on each node")
    remedy = "modprobe ib_uverbs rdma_ucm there, and look whether the NIC is on the PCI bus"
    return warned("RDMA is not capable and available there", remedy=remedy, hosts=lacking)


def _mofed(facts: ClusterFacts, needs: NicNeeds) -> CheckResult:
    marked = [node for node in facts.nodes if MOFED in node.labels]
    waiting = _names(node for node in marked if node.labels[MOFED] != "false")
    if not marked:
        return skipped("NVIDIA's network operator is not on these nodes")
    if not waiting:
        return passed("the NIC's driver is loaded")
    remedy = "see the operator's driver Pod (mofed) on that node"
    return failed(f"{MOFED}=true: the NIC's driver is not loaded yet", remedy=remedy, hosts=waiting)


def _zones(facts: ClusterFacts, needs: NicNeeds) -> CheckResult:
    zones = Counter(node.labels[ZONE] for node in facts.nodes if ZONE in node.labels)
    if len(zones) < 2:
        return passed(next(iter(zones), "no node has a label for its zone"))
    words = ", ".join(f"{zone} {count}" for zone, count in zones.most_common())
    remedy = "take nodes of one zone: RDMA seldom crosses them"
    return warned(f"nodes by zone: {words}", expected="one zone", remedy=remedy)


def _version(word: str) -> Callable[[ClusterFacts, NicNeeds], Found]:
    def judge(facts: ClusterFacts, needs: NicNeeds) -> Found:
        values = {node.name: str(getattr(node, word)) for node in facts.nodes if getattr(node, word)}
        return _alike(values, word, "bring the nodes to one version")

    return judge


def _topology(facts: ClusterFacts, needs: NicNeeds) -> CheckResult:
    return skipped(
        "only the kubelet's file shows whether GPUs, NICs and CPUs of one NUMA node are given together"
    )


def _alike(values: Mapping[str, str], what: str, remedy: str) -> Found:
    """Return what is not the majority's value; one pass where all are the same."""
    groups = _by_value(values)
    usual = groups[0][0] if groups else "unknown"
    bad = (
        warned(f"{what}: {value}", expected=usual, remedy=remedy, hosts=hosts) for value, hosts in groups[1:]
    )
    return unless(bad, f"{what}: {usual}")


def _by_value(values: Mapping[str, str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return each value with those that have it, the most frequent first."""
    found: dict[str, list[str]] = {}
    for name, value in values.items():
        found.setdefault(value, []).append(name)
    return sorted(((value, tuple(names)) for value, names in found.items()), key=lambda one: -len(one[1]))


JUDGES: Mapping[str, Callable[[ClusterFacts, NicNeeds], Found]] = {
    "ready": _ready,
    "nics": _nics,
    "more": _more,
    "gpus": _gpus,
    "taints": _taints,
    "pod-security": _pod_security,
    "networks": _networks,
    "nfd": _nfd,
    "mofed": _mofed,
    "zones": _zones,
    **{word: _version(word) for word in ("kubelet", "runtime", "system", "kernel")},
    "topology-manager": _topology,
}
"""End of the id → the judge."""
