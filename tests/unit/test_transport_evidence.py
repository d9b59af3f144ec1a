"""What agents and ranks told, put together host by host."""

from dataclasses import replace
from typing import Any

import pytest

from ringleader.fabric.transport_proof.bytes_moved import BytesMoved
from ringleader.fabric.transport_proof.evidence import Exchanged, LibraryTraffic, LogLines, MpiTransport
from ringleader.fabric.transport_proof.wires_without_engine import carried_within
from ringleader.launch.job_transport import engine_traffic, host_evidence, mpi_transport, tcp_connections
from ringleader.launch.launch_job import may_have_exchanged
from ringleader.plan.job import Family, Host, Job, Mpi
from ringleader.plan.rank_placement import HostFacts, place

OPENMPI = Mpi(family=Family.OPENMPI5, version="5.0.8", mpirun="/m", library="")
MPICH = Mpi(family=Family.MPICH, version="4.2.0", mpirun="/m", library="")
MPI = mpi_transport(OPENMPI, {})


def two_hosts() -> Any:
    facts = [
        HostFacts(host=Host(name=name, slots=2), hostname=name, identity=name, is_local=False, cpus=(0, 1))
        for name in ("h1", "h2")
    ]
    return place(Job(command=("true",), np=4, hosts=tuple(one.host for one in facts)), facts)


def report(shared: Any = 0, **mpi: Any) -> dict[str, Any]:
    return {"kind": "traffic", "shared": shared, "libraries": {"mpi": mpi}}


def snapshot(*names: str, virtual: bool = True) -> dict[str, Any]:
    devices = {name: {"values": {"tx_bytes": 1}, "is_virtual": virtual} for name in names}
    return {"at": 1.0, "rdma_ports": {}, "net_devices": devices}


def test_each_host_has_its_own() -> None:
    gathered = [
        {"before": snapshot("eth0"), "after": snapshot("eth0")},
        {"logs": {"nccl": {"lines": ["NCCL INFO Using network IB"], "left_out": 3}}},
        None,
        {"missing": "before the start: OSError: no"},
    ]
    reports = [[report(shared=1, sent_least=2, sent_most=3)], [report(shared=10)], [], []]
    first, second = host_evidence(two_hosts(), MPI, reports, gathered)
    assert (first.host, first.ranks, second.ranks) == ("h1", (0, 1), (2, 3))
    assert first.traffic is not None and second.traffic is None
    assert (first.traffic.shared_memory, first.traffic.ranks_counted) == (11, 2)
    assert first.traffic.libraries == {"mpi": LibraryTraffic(sent_least=2, sent_most=3)}
    assert first.before is not None and set(first.before.net_devices) == {"eth0"}
    assert first.nccl == (LogLines(rank=1, lines=("NCCL INFO Using network IB",), left_out=3),)
    assert (second.before, second.after, second.nccl) == (None, None, ())
    assert (first.missing, second.missing) == (
        "",
        "the agent of rank 2 reported nothing: it or its host was terminated",
    )
    assert (first.mpi.family, first.mpi.version) == ("Open MPI", "5.0.8")
    assert (first.shared_with_others, second.shared_with_others) == (False, True)
    gathered[0]["after"] = snapshot("eth0", virtual=False)
    assert host_evidence(two_hosts(), MPI, [[]] * 4, gathered)[0].shared_with_others, "hardware is"
    found = engine_traffic([[report(local=1), report(local=2)], [report(local=4)], []], {})
    assert (found.ranks_counted, found.libraries["mpi"].local) == (2, 7), "over ranks and lives"


@pytest.mark.parametrize(
    ("mpi", "variables", "known"),
    [
        (OPENMPI, {"OMPI_MCA_pml": "ucx"}, {"pml": "ucx"}),
        (OPENMPI, {"OMPI_MCA_pml": "^cm", "OMPI_MCA_btl": "^openib"}, {}),
        (OPENMPI, {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,tcp"},
         {"pml": "ob1", "btls": ("self", "tcp")}),
        (MPICH, {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"},
         {"netmod": "ch4:ofi", "provider": "tcp"}),
        (MPICH, {"OMPI_MCA_pml": "ucx", "FI_PROVIDER": "^shm"}, {}),
    ],
)  # fmt: skip
def test_what_variables_make_an_mpi_use(mpi: Mpi, variables: dict[str, str], known: dict[str, Any]) -> None:
    family = "MPICH" if mpi is MPICH else "Open MPI"
    assert mpi_transport(mpi, variables) == MpiTransport(family=family, version=mpi.version, **known)


def test_peers_are_hosts() -> None:
    told = {"kind": "traffic", "peers": {"2": [1, 10], "3": [2, 20], "9": [5, 5]}}
    found = engine_traffic([[told], [told]], {0: "h1", 1: "h1", 2: "h2", 3: "h2"})
    assert found.peers == {"h2": Exchanged(sent=6, received=60)}


HOSTS = {"h1": {"10.0.0.1": "eth0", "172.17.0.1": "docker0"}, "h2": {"10.0.0.2": "", "172.17.0.1": "docker0"}}


def connections(*pairs: list[Any], missing: str = "") -> dict[str, Any]:
    return {"connections": {"pairs": list(pairs), "missing": missing}}


def test_connections_with_hosts_of_the_job_count_by_host_and_interface() -> None:
    told = [
        connections(
            ["10.0.0.1", "10.0.0.2", 5, 7],
            ["10.0.0.1", "151.101.0.223", 1000, 1000],  # a registry of packages
            ["127.0.0.1", "127.0.0.1", 3, 3],
            ["0" * 31 + "1", "0" * 31 + "1", 1, 1],
            ["172.17.0.1", "172.17.0.1", 2, 2],
        ),
        {"logs": {}},
        connections(["10.0.0.1", "10.0.0.2", 10, 20], missing="No buffer space available"),
    ]
    found, missing = tcp_connections(told, "h1", HOSTS)
    assert tcp_connections([], "h1", HOSTS) == (None, "")
    refused = connections(missing="Protocol not supported")
    assert tcp_connections([refused], "h1", HOSTS) == (None, "Protocol not supported")
    assert found is not None and missing == "No buffer space available"
    assert {(one.peer, one.interface): (one.moved.sent, one.moved.received) for one in found} == {
        ("h2", "eth0"): (15, 27),
        ("h1", ""): (4, 4),
        ("h1", "docker0"): (2, 2),
    }


def test_short_connections_of_unknown_users_between_the_jobs_hosts_are_named() -> None:
    told: dict[str, Any] = connections()
    told["connections"]["unowned"] = [["10.0.0.1", "10.0.0.2", 3 << 20]]
    assert tcp_connections([told], "h1", HOSTS)[1] == "short connections of unknown users moved 3 MiB"
    for other in ("10.9.9.9", "127.0.0.1"):
        told["connections"]["unowned"] = [["10.0.0.1", other, 3 << 20]]
        assert tcp_connections([told], "h1", HOSTS) == ((), "")
    (host, _) = host_evidence(two_hosts(), MPI, [[]] * 4, [told, None, None, None])
    assert host.unowned_within == 3 << 20
    assert "of unknown users moved 3 MiB within the host" in carried_within(host, BytesMoved()).unjudged


def test_addresses_are_those_of_the_probe_and_of_the_counters() -> None:
    after = snapshot("eth0")
    after["net_devices"]["eth0"]["addresses"] = ["10.0.0.1"]
    plan = two_hosts()
    other = replace(plan.hosts[1], addresses=("10.0.0.2",))
    plan = replace(plan, hosts=(plan.hosts[0], other))
    told = connections(["10.0.0.1", "10.0.0.2", 1, 2], ["gone", "10.0.0.2", 4, 8])
    gathered = [{"before": snapshot("eth0"), "after": after, "verbs": ["mlx5_0"], **told}, None, None, None]
    first, second = host_evidence(plan, MPI, [[]] * 4, gathered)
    assert first.connections is not None and first.verbs == ("mlx5_0",)
    assert [(one.peer, one.interface, one.moved.total) for one in first.connections] == [
        ("h2", "eth0", 3),
        ("h2", "", 12),
    ]
    assert (second.connections, second.connections_missing) == (None, "")


def test_jobs_that_exchanged_nothing_do_not_end_later() -> None:
    for evidence, worth in (
        ({}, False),
        (connections(["10.0.0.1", "10.0.0.2", 5, 7]), False),
        (connections(["10.0.0.1", "10.0.0.2", 1 << 20, 7]), True),
        (connections(missing="Protocol not supported"), True),
        ({"verbs": ["mlx5_0"]}, True),
    ):
        assert may_have_exchanged(evidence) is worth


def test_what_makes_no_sense_counts_nothing() -> None:
    for report in (
        {},
        {"shared": "much", "libraries": ["mpi"]},
        {"shared": -5, "libraries": {"mpi": 3}, "peers": {"x": [1, 2], "0": [1], "1": 5, "7": [1, 1]}},
        {"shared": True, "libraries": {"mpi": {"sent_least": "x", "sent_most": None, "local": -1}}},
    ):
        found = engine_traffic([[report]], {})
        assert (found.shared_memory, sum(one.most for one in found.libraries.values())) == (0, 0)
    for counters in (
        3,
        {},
        {"at": "now"},
        {"at": 1.0, "net_devices": {"eth0": {"values": {"rx_bytes": "7"}}}},
    ):
        gathered = [{"before": counters, "after": counters}, None, None, None]
        assert host_evidence(two_hosts(), MPI, [[]] * 4, gathered)[0].before is None
