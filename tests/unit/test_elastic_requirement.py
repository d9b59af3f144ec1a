"""``--require`` of an elastic job: hosts that cannot meet it, and its end, with ranks that come and go."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.unit.test_transport_requirement import PORT, plan

from ringleader.launch.elastic import launch_elastic
from ringleader.launch.job_transport import faults_of_host
from ringleader.launch.outcome import JobExit
from ringleader.plan.job import Family, Mpi

MIB = 1 << 20
GOOD = JobExit(exit_code=0, whose="", reason="", first_failure=None)


def test_a_host_is_judged_by_itself():
    """Others may come: that it is alone, or has one rank, is no fault."""
    for words, ports, slots, said in (
        (("rdma",), (PORT,), 1, ""),
        (("rdma",), (), 1, "rdma is required, and it has no RDMA device"),
        (("tcp",), (), 1, ""),
        (("gdr",), (PORT,), 2, "it has no GPU, and gdr is required"),
    ):
        (host,) = plan(h1=ports).hosts
        assert "; ".join(fault.what for fault in faults_of_host(words, host, slots)) == said


def snapshot(nbytes):
    device = {
        "values": {"rx_bytes": nbytes, "tx_bytes": nbytes},
        "kind": "ethernet",
        "addresses": ["10.0.0.1"],
    }
    return {"at": 1.0, "net_devices": {"eth0": device}}


def rank(host, *, counters, told=True):
    """``counters``: what the host's device had carried when the rank began and when it had ended."""
    (place,) = plan(h1=()).ranks
    evidence = {}
    if counters is not None:
        evidence = {"before": snapshot(counters[0]), "after": snapshot(counters[1])}
    sums = dict.fromkeys(("handed", "sent_least", "sent_most", "received_least", "received_most"), 20 * MIB)
    traffic = [{"kind": "traffic", "shared": 0, "libraries": {"mpi": {"local": 0} | sums}, "peers": {}}]
    return SimpleNamespace(host=host, place=place, slot=0, evidence=evidence, traffic=traffic if told else [])


@pytest.fixture
def run():
    h1, h2 = plan(h1=(), h2=()).hosts
    ranks = [rank(h1, counters=(0, MIB), told=False), rank(h2, counters=(0, 30 * MIB))]
    ranks.append(rank(h1, counters=(2 * MIB, 30 * MIB)))  # the one that took the place of the first
    listener = SimpleNamespace(warning=pytest.fail)
    return SimpleNamespace(ranks=dict(enumerate(ranks)), listener=listener)


def judged(run, *words):
    mpi = Mpi(family=Family.OPENMPI5, version="5.0.10", mpirun="mpirun", library="")
    prepared = SimpleNamespace(mpi=mpi, mpirun_environment=lambda port, token: {})
    proof = launch_elastic._proof(run, prepared)
    assert proof is not None and [host.host for host in proof.hosts] == ["h1", "h2"]
    return launch_elastic._judged(words, GOOD, proof, run)


def test_what_all_ranks_of_a_host_exchanged_is_compared_with_its_counters(run):
    assert judged(run, "tcp") == GOOD
    found = judged(run, "rdma")
    assert (found.exit_code, found.whose) == (3, "ringleader")
    assert "h1: to other hosts TCP 100% instead of rdma" in found.reason
    # A host with one slot has nothing to show of shared memory, however many ranks it had in turn.
    assert "h1: shm" not in judged(run, "shm").reason
    failed = replace(GOOD, exit_code=137, whose="rank 1", reason="killed")
    assert launch_elastic._judged(("rdma",), failed, None, run) == failed
    run.ranks[1].evidence, run.ranks[1].traffic = None, []
    assert judged(run, "tcp") == GOOD, "a host that was lost is judged by the others"
    for one in run.ranks.values():
        one.evidence = None
    assert "tcp is not shown: no host gathered any evidence" in judged(run, "tcp").reason


def test_ranks_without_the_engine_are_judged_by_their_connections(run):
    """Those of all ranks that a host has had add up: one agent follows them after the other."""
    for one in run.ranks.values():
        one.traffic = []
        peer = "10.0.0.2" if one.host.host.name == "h1" else "10.0.0.1"
        ours = "10.0.0.1" if peer == "10.0.0.2" else "10.0.0.2"
        one.evidence["connections"] = {"pairs": [[ours, peer, 5 * MIB, 5 * MIB]], "missing": ""}
        for when in ("before", "after"):
            one.evidence[when]["net_devices"]["eth0"]["addresses"] = [ours]
    assert judged(run, "tcp") == GOOD
    assert "h1: to other hosts TCP 100% instead of rdma" in judged(run, "rdma").reason
    mpi = Mpi(family=Family.OPENMPI5, version="5.0.10", mpirun="mpirun", library="")
    prepared = SimpleNamespace(mpi=mpi, mpirun_environment=lambda port, token: {})
    proof = launch_elastic._proof(run, prepared)
    assert proof is not None and [host.between.exchanged // MIB for host in proof.hosts] == [20, 10]
