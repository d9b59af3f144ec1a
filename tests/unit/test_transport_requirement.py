"""``--require`` against the plan of a job and against its end."""

from typing import Any

from ringleader.fabric.transport_proof.proof import HostProof, TransportProof, WireShares
from ringleader.fabric.wires import Wire
from ringleader.launch.job_transport import NOTHING_TOLD, faults_at_start, judged_exit
from ringleader.launch.outcome import JobExit
from ringleader.plan.job import Host, Job
from ringleader.plan.rank_placement import HostFacts, Plan, RdmaPort, place

GOOD = JobExit(exit_code=0, whose="", reason="", first_failure=None)
USUAL = {"state": "ACTIVE", "link_layer": "InfiniBand", "node_type": 1, "driver": "mlx5_core"}
PORT = RdmaPort(device="mlx5_0", port=1, file="/dev/infiniband/uverbs0", **USUAL)


def plan(**ports: tuple[RdmaPort, ...]) -> Plan:
    facts = [
        HostFacts(
            host=Host(name=name, slots=1), hostname=name, identity=name, is_local=False, cpus=(0,), rdma=found
        )
        for name, found in ports.items()
    ]
    return place(Job(command=("x",), hosts=tuple(one.host for one in facts)), facts)


def with_port(**fields: Any) -> tuple[RdmaPort, ...]:
    return (RdmaPort(**(vars(PORT) | fields)),)


def test_every_host_without_rdma_is_named() -> None:
    found = faults_at_start(("rdma",), plan(h1=(), h2=(PORT,), h3=()))
    assert [fault.where for fault in found] == ["h1", "h3"]
    assert all("no RDMA device" in fault.what for fault in found)
    assert faults_at_start((), plan(h1=())) == faults_at_start(("rdma",), plan(h1=(PORT,), h2=(PORT,))) == ()
    (fault,) = faults_at_start(("rdma",), plan(h1=(PORT,)))
    assert "this job has one" in fault.what


def test_a_port_that_cannot_be_used() -> None:
    for ports, why in (
        (with_port(state="DOWN"), "its state is DOWN"),
        (with_port(file=""), "uverbs"),
        (with_port(unusable="Permission denied"), "Permission denied"),
        (with_port(link_layer="Ethernet"), "network interface is not in this network namespace"),
    ):
        (fault,) = faults_at_start(("infiniband",), plan(h1=ports, h2=(PORT,)))
        assert fault.where == "h1" and why in fault.what


def proof(wire: Wire) -> TransportProof:
    between = WireShares(exchanged=100, shares={wire: 1.0}, evidence=("counters say so",))
    return TransportProof(hosts=tuple(HostProof(host=f"h{n}", ranks=(n,), between=between) for n in range(6)))


def test_another_wire_is_a_refusal() -> None:
    ended = judged_exit(("rdma",), GOOD, proof(Wire.TCP))
    assert (ended.exit_code, ended.whose) == (3, "ringleader")
    assert ended.reason.startswith("--require rdma: h0: to other hosts TCP 100% instead of rdma")
    assert ended.reason.endswith("and 2 more hosts")
    assert judged_exit(("tcp",), GOOD, proof(Wire.TCP)) == judged_exit((), GOOD, None) == GOOD
    failed = JobExit(exit_code=7, whose="rank 1", reason="it broke", first_failure=None)
    assert judged_exit(("rdma",), failed, None) == failed, "a failed job keeps its own exit code"
    assert judged_exit(("rdma",), GOOD, None).reason == f"--require rdma: {NOTHING_TOLD}"
    assert "leave --require out" in NOTHING_TOLD  # what to do
