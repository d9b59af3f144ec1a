"""What nodes advertise against what Pods with NICs need."""

from dataclasses import replace

from ringleader.fabric.checks.kubernetes import MOFED, ZONE, judge_cluster
from ringleader.fabric.cluster_facts import ClusterFacts, NicNeeds, NodeFacts, Taint

CAPABLE, AVAILABLE = (f"feature.node.kubernetes.io/rdma.{word}" for word in ("capable", "available"))


def node(name, **changes):
    fields = {"name": name, "ready": True, "allocatable": {"rdma/ib": 8.0, "nvidia.com/gpu": 8.0}}
    return NodeFacts(**(fields | changes))


GOOD = ClusterFacts(namespace="team", nodes=(node("n1"), node("n2"), node("n3")), selector="pool=gpu")
NEEDS = NicNeeds(
    profile="aks-ib", resource="rdma/ib", count=8, forbidden_below_privileged=("IPC_LOCK",), is_mellanox=True
)


def told(facts, needs=NEEDS):
    return {one.id.removeprefix("kubernetes."): one for one in judge_cluster(facts, needs)}


def with_node(**changes):
    return replace(GOOD, nodes=(*GOOD.nodes[:2], node("n3", **changes)))


def test_nodes_with_all_that_is_needed_pass():
    bad = {id: one.seen for id, one in told(GOOD).items() if one.verdict in ("fail", "warn")}
    assert bad == {} and len(told(GOOD)) >= 13


def test_what_keeps_pods_from_their_nics():
    for facts, id, verdict, words in (
        (replace(GOOD, nodes=()), "nodes", "fail", "pool=gpu"),
        (with_node(ready=False), "ready", "fail", "not ready"),
        (with_node(schedulable=False), "ready", "warn", "cordoned"),
        (with_node(allocatable={"rdma/ib": 2.0, "nvidia.com/gpu": 8.0}), "nics", "fail", "2 rdma/ib"),
        (with_node(allocatable={"rdma/ib": 8.0, "nvidia.com/gpu": 7.0}), "gpus", "warn", "7"),
        (with_node(taints=(Taint(key="team", value="a"),)), "taints", "warn", "team=a:NoSchedule"),
        (with_node(taints=(Taint(key="nvidia.com/gpu"),)), "taints", "pass", "none"),
        (replace(GOOD, pod_security="baseline"), "pod-security", "fail", "refuses IPC_LOCK"),
        (replace(GOOD, pod_security=None), "pod-security", "skip", "not readable"),
        (with_node(labels={CAPABLE: "true", AVAILABLE: "true"}), "nfd", "warn", "not capable"),
        (with_node(labels={MOFED: "true"}), "mofed", "fail", "not loaded"),
        (
            replace(GOOD, nodes=(node("n1", labels={ZONE: "a"}), node("n2", labels={ZONE: "b"}))),
            "zones",
            "warn",
            "a 1, b 1",
        ),
        (
            replace(GOOD, nodes=tuple(node(f"n{n}", kernel=f"6.{n // 3}") for n in (1, 2, 3))),
            "kernel",
            "warn",
            "6.1",
        ),
    ):
        found = told(facts)[id]
        assert found.verdict == verdict and words in found.seen
        assert found.remedy or verdict not in ("fail", "warn")


def test_the_name_that_the_resource_has_there_is_told():
    found = told(with_node(allocatable={"nvidia.com/hostdev": 8.0, "nvidia.com/gpu": 8.0}))["nics"]
    assert found.hosts == ("n3",) and "--rdma-resource nvidia.com/hostdev" in found.remedy


def test_networks_and_huge_pages():
    needs = NicNeeds(
        profile="efa", resource="rdma/ib", count=1, more={"hugepages-2Mi": 5.0e9}, networks=("a", "b/c", "d")
    )
    results = judge_cluster(replace(GOOD, networks={"a": True, "b/c": False, "d": None}), needs)
    networks = {one.subject: one.verdict for one in results if one.id == "kubernetes.networks"}
    assert networks == {"a": "pass", "b/c": "fail", "d": "skip"}
    (more,) = (one for one in results if one.id == "kubernetes.more")
    assert more.verdict == "fail" and more.hosts == ("n1", "n2", "n3")


def test_a_profile_without_a_resource():
    found = told(GOOD, NicNeeds(profile="host-network", forbidden_below_privileged=("hostNetwork",)))
    assert found["nics"].verdict == "skip" and found["nfd"].verdict == "skip"
