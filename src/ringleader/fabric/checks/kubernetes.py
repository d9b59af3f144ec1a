"""Checks of a Kubernetes cluster: what its nodes advertise against what Pods with NICs need. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.cluster_facts import ClusterFacts, NicNeeds, NodeFacts

GPU = "nvidia.com/gpu"
FEATURE = "feature.node.kubernetes.io"
NFD = ((f"{FEATURE}/rdma.capable", f"{FEATURE}/rdma.available"),)
NFD_OLD = ((f"{FEATURE}/custom-rdma.capable", f"{FEATURE}/custom-rdma.available"),)
"""Labels of node-feature-discovery since 0.13, and before."""
MOFED = "network.nvidia.com/operator.mofed.wait"
"""``false`` where NVIDIA's network operator has loaded the NIC's driver."""
ZONE = "topology.kubernetes.io/zone"
IGNORED_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Kubernetes sets them itself where a node is not ready: ``kubernetes.ready`` tells."""
Judge = Callable[[ClusterFacts, NicNeeds], Iterable[CheckResult]]


def judge_cluster(facts: ClusterFacts, needs: NicNeeds) -> tuple[CheckResult, ...]:
    """Return the verdicts of all checks; without a node only that there is none."""
    if not facts.nodes:
        chosen = f"no node has the label {facts.selector}" if facts.selector else "the cluster has no node"
        remedy = "kubectl get nodes --show-labels"
        return (CheckResult(id="kubernetes.nodes", verdict=Verdict.FAIL, seen=chosen, remedy=remedy),)
    return tuple(result for judge in JUDGES for result in judge(facts, needs))


def _result(id: str, verdict: Verdict, seen: str, **fields: str | tuple[str, ...]) -> CheckResult:
    return CheckResult(id=f"kubernetes.{id}", verdict=verdict, seen=seen, **fields)  # type: ignore[arg-type]


def _names(nodes: Iterable[NodeFacts]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _ready(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    down = [node for node in facts.nodes if not node.ready]
    cordoned = [node for node in facts.nodes if node.ready and not node.schedulable]
    if down:
        remedy = "kubectl describe node: its conditions say why"
        yield _result("ready", Verdict.FAIL, "not ready", remedy=remedy, hosts=_names(down))
    if cordoned:
        remedy = "kubectl uncordon, once whoever cordoned it agrees"
        yield _result("ready", Verdict.WARN, "cordoned", remedy=remedy, hosts=_names(cordoned))
    if not down and not cordoned:
        yield _result("ready", Verdict.PASS, f"{len(facts.nodes)} nodes are ready")


def _nics(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    """Judge the extended resource of the NICs, node by node."""
    if not needs.resource:
        yield _result("nics", Verdict.SKIP, f"the profile {needs.profile} takes no extended resource")
        return
    amounts = {node.name: int(node.allocatable.get(needs.resource, 0)) for node in facts.nodes}
    expected = f"{needs.count} {needs.resource}"
    good = [name for name, amount in amounts.items() if amount >= needs.count]
    for amount, hosts in _by_value({name: str(one) for name, one in amounts.items() if name not in good}):
        seen = f"{amount} {needs.resource} allocatable"
        nodes = [node for node in facts.nodes if node.name in hosts]
        remedy = (
            _resource_remedy(nodes, needs) if amount == "0" else "kubectl describe node: what failed there"
        )
        yield _result("nics", Verdict.FAIL, seen, expected=expected, remedy=remedy, hosts=hosts)
    if len(good) == len(amounts):
        counts = ", ".join(sorted({str(amount) for amount in amounts.values()}))
        yield _result("nics", Verdict.PASS, f"{counts} {needs.resource} on each node", expected=expected)


def _resource_remedy(nodes: Iterable[NodeFacts], needs: NicNeeds) -> str:
    """Return what to do where a node has none of the resource: name the one that it has."""
    there = {name for node in nodes for name, amount in node.allocatable.items() if amount > 0}
    known = [name for name in needs.known_resources if name in there and name != needs.resource]
    alike = sorted(name for name in there if "/" in name and _looks_like_nics(name))
    found = known or [name for name in alike if name != needs.resource]
    if found:
        return f"there it is called {', '.join(found)}: --rdma-resource {found[0]}, or another profile"
    return "install the NICs' device plugin, or see the log of its Pod on this node"


def _looks_like_nics(name: str) -> bool:
    return name.startswith(("rdma/", "mellanox.com/", "aliyun/erdma", "vpc.amazonaws.com/efa")) or any(
        word in name for word in ("rdma", "hostdev", "mlnx", "sriov", "hca")
    )


def _more(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    for resource, amount in needs.more.items():
        poor = [node for node in facts.nodes if node.allocatable.get(resource, 0) < amount]
        expected = f"{amount:,.0f} {resource}"
        if poor:
            remedy = "reserve huge pages on the node before the kubelet starts (vm.nr_hugepages)"
            yield _result(
                "more", Verdict.FAIL, "less is allocatable", expected=expected, remedy=remedy,
                subject=resource, hosts=_names(poor),
            )  # fmt: skip
        else:
            yield _result("more", Verdict.PASS, "on each node", expected=expected, subject=resource)


def _gpus(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    amounts = {node.name: f"{node.allocatable.get(GPU, 0):.0f}" for node in facts.nodes}
    yield from _alike("gpus", amounts, f"{GPU} allocatable", "see the GPU device plugin's Pod on that node")


def _taints(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    """Tell what Pods must tolerate; a resource\'s own taint is tolerated by whoever asks for the resource."""
    found: dict[str, list[str]] = {}
    for node in facts.nodes:
        for taint in node.taints:
            own = taint.key in (needs.resource, GPU)
            if taint.effect != "PreferNoSchedule" and not own and not taint.key.startswith(IGNORED_TAINTS):
                found.setdefault(str(taint), []).append(node.name)
    for text, hosts in found.items():
        remedy = f"jobs need --toleration {text}"
        yield _result("taints", Verdict.WARN, text, remedy=remedy, hosts=tuple(hosts))
    if not found:
        yield _result("taints", Verdict.PASS, "none that keeps these Pods away")


def _pod_security(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    level, refused = facts.pod_security, ", ".join(needs.forbidden_below_privileged)
    if not refused:
        yield _result("pod-security", Verdict.SKIP, f"the profile {needs.profile} needs no special right")
    elif level is None:
        yield _result("pod-security", Verdict.SKIP, f"the namespace {facts.namespace} is not readable")
    elif level in ("baseline", "restricted"):
        label = "pod-security.kubernetes.io/enforce=privileged"
        yield _result(
            "pod-security", Verdict.FAIL, f"{facts.namespace} enforces {level}, which refuses {refused}",
            expected="privileged", remedy=f"kubectl label namespace {facts.namespace} --overwrite {label}",
        )  # fmt: skip
    else:
        seen = f"{facts.namespace} enforces {level}" if level else f"{facts.namespace} sets no level"
        yield _result("pod-security", Verdict.PASS, seen)


def _networks(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    if not needs.networks:
        yield _result("networks", Verdict.SKIP, "no network of Multus is asked for")
    for name in dict.fromkeys(needs.networks):
        there = facts.networks.get(name)
        if there is None:
            what = "not readable: get on network-attachment-definitions is not allowed"
            yield _result("networks", Verdict.SKIP, what, subject=name)
        elif there:
            yield _result("networks", Verdict.PASS, "it is there", subject=name)
        else:
            remedy = "kubectl get network-attachment-definitions -A; NAMESPACE/NAME names one elsewhere"
            yield _result(
                "networks", Verdict.FAIL, f"no such network, seen from {facts.namespace}", subject=name,
                remedy=remedy,
            )  # fmt: skip


def _nfd(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    """Tell what node-feature-discovery says; without it there is nothing to judge."""
    if not needs.is_mellanox:
        yield _result("nfd", Verdict.SKIP, "its labels mean NICs of the PCI vendor 15b3 alone")
        return
    names = [name for pair in (*NFD, *NFD_OLD) for name in pair]
    marked = [node for node in facts.nodes if any(name in node.labels for name in names)]
    if not marked:
        yield _result("nfd", Verdict.SKIP, "no node has labels of node-feature-discovery for RDMA")
        return
    lacking = [
        node for node in facts.nodes
        if not any(all(node.labels.get(name) == "true" for name in pair) for pair in (*NFD, *NFD_OLD))
    ]  # fmt: skip
    if lacking:
        remedy = "modprobe ib_uverbs rdma_ucm there, and look whether the NIC is on the PCI bus"
        yield _result(
            "nfd",
            Verdict.WARN,
            "RDMA is not capable and available there",
            remedy=remedy,
            hosts=_names(lacking),
        )
    else:
        yield _result("nfd", Verdict.PASS, "RDMA is capable and available on each node")


def _mofed(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    told = [node for node in facts.nodes if MOFED in node.labels]
    waiting = [node for node in told if node.labels[MOFED] != "false"]
    if not told:
        yield _result("mofed", Verdict.SKIP, "NVIDIA's network operator is not on these nodes")
    elif waiting:
        remedy = "see the operator's driver Pod (mofed) on that node"
        yield _result(
            "mofed", Verdict.FAIL, f"{MOFED}=true: the NIC\'s driver is not loaded yet", remedy=remedy,
            hosts=_names(waiting),
        )  # fmt: skip
    else:
        yield _result("mofed", Verdict.PASS, "the NIC's driver is loaded")


def _zones(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    zones = {node.name: node.labels[ZONE] for node in facts.nodes if ZONE in node.labels}
    if len(set(zones.values())) > 1:
        words = ", ".join(f"{zone} {count}" for zone, count in Counter(zones.values()).most_common())
        remedy = "take nodes of one zone: RDMA seldom crosses them"
        yield _result("zones", Verdict.WARN, f"nodes by zone: {words}", expected="one zone", remedy=remedy)
    else:
        yield _result("zones", Verdict.PASS, next(iter(zones.values()), "no node tells its zone"))


def _versions(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    for word in ("kubelet", "runtime", "system", "kernel"):
        values = {node.name: str(getattr(node, word)) for node in facts.nodes if getattr(node, word)}
        yield from _alike(f"{word}", values, word, "bring the nodes to one version")


def _topology(facts: ClusterFacts, needs: NicNeeds) -> Iterator[CheckResult]:
    what = "whether GPUs, NICs and CPUs of one NUMA node are given together, only the kubelet's file tells"
    yield _result("topology-manager", Verdict.SKIP, what)


def _alike(id: str, values: Mapping[str, str], what: str, remedy: str) -> Iterator[CheckResult]:
    """Yield what is not the majority\'s value; one pass where all are the same."""
    groups = _by_value(values)
    usual = groups[0][0] if groups else "not told"
    for value, hosts in groups[1:]:
        yield _result(id, Verdict.WARN, f"{what}: {value}", expected=usual, remedy=remedy, hosts=hosts)
    if len(groups) < 2:
        yield _result(id, Verdict.PASS, f"{what}: {usual}")


def _by_value(values: Mapping[str, str]) -> list[tuple[str, tuple[str, ...]]]:
    """Return each value with those that have it, the most frequent first."""
    found: dict[str, list[str]] = {}
    for name, value in values.items():
        found.setdefault(value, []).append(name)
    return sorted(((value, tuple(names)) for value, names in found.items()), key=lambda one: -len(one[1]))


JUDGES: tuple[Judge, ...] = (
    _ready, _nics, _more, _gpus, _taints, _pod_security, _networks, _nfd, _mofed, _zones, _versions,
    _topology,
)  # fmt: skip
