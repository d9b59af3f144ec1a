"""What carried the bytes of ranks that report nothing: connections, ports, logs, and what contradicts."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.fabric.test_transport_proof_wires_between import NET_IB, NET_SOCKET
from tests.unit.fabric.transport_evidence import host

from ringleader.fabric.transport_proof.bytes_moved import bytes_moved
from ringleader.fabric.transport_proof.judged_transport import judged_transport
from ringleader.fabric.transport_proof.proof import WireShares, lines
from ringleader.fabric.transport_proof.wires_without_engine import carried_between, carried_within
from ringleader.fabric.wires import Wire

MNNVL = ["Channel 00/0 : 0[0] -> 9[0] via P2P/MNNVL"]
SHM = ["Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"]
TCP, IB = {Wire.TCP: 1.0}, {Wire.INFINIBAND: 1.0}


def judge(moved: Any, connections: Any = None, **keywords: Any) -> WireShares:
    one = host(moved, counted=0, connections=connections, **keywords)
    found = carried_between(one, bytes_moved(one))
    assert not found.shares or sum(found.shares.values()) == pytest.approx(1.0)
    assert bool(found.shares) != bool(found.unjudged) and found.by_connections
    return found


@pytest.mark.parametrize(
    ("moved", "connections", "keywords", "shares"),
    [
        # Sockets, whether a log says so or not, and whatever else the interface carried.
        ({"eth0": 900}, {"eth0": 64}, {}, TCP),
        ({"eth0": 66, "ib": 0.1}, {"eth0": 64}, {"nccl_log": NET_SOCKET, "gpus": 1}, TCP),
        ({"ib0": 66, "ib": 68}, {"ib0": 64}, {}, {Wire.IPOIB: 1.0}),
        # Ports count for all of the host: a log, an open device, or a network namespace makes them the job's.
        ({"ib": 3000, "eth0": 2}, {"eth0": 0.1}, {"nccl_log": NET_IB, "gpus": 1}, IB),
        ({"ib": 3000, "eth0": 2}, {"eth0": 0.1}, {"verbs": ["mlx5_0"]}, IB),
        ({"ib": 3000, "eth0": 2}, {"eth0": 0.1}, {"shared_with_others": False}, IB),
        ({"ib": 192, "eth0": 66}, {"eth0": 64}, {}, {Wire.UNKNOWN: 0.75, Wire.TCP: 0.25}),
        # A library opens a device that it may not use: where connections moved much, a log must name it.
        ({"ib": 64, "eth0": 66}, {"eth0": 64}, {"nccl_log": NET_IB, "gpus": 1},
         {Wire.INFINIBAND: 0.5, Wire.TCP: 0.5}),
        # An open device makes its own ports the job's, and no others.
        ({"ib": 48, "roce": 16}, {}, {"verbs": ["mlx5_0"]}, {Wire.INFINIBAND: 0.75, Wire.UNKNOWN: 0.25}),
        # The log says sockets: the ports served others.
        ({"ib": 3000, "eth0": 66}, {"eth0": 64}, {"nccl_log": NET_SOCKET, "gpus": 1}, TCP),
        # Counters outweigh a log.
        ({"ib": 0, "eth0": 66}, {"eth0": 64}, {"nccl_log": NET_IB, "gpus": 1}, TCP),
        # Ports whose counters say nothing: a log is believed, and without one nothing is known.
        ({"ib": "N/A (no PMA)", "eth0": 2}, {}, {"nccl_log": NET_IB, "gpus": 1}, IB),
        ({"ib": "N/A (no PMA)", "eth0": 66}, {"eth0": 64}, {}, {Wire.UNKNOWN: 1.0}),
        ({"ib": "N/A (no PMA)", "eth0": 66}, {"eth0": 64}, {"state": "DOWN"}, TCP),
        # No connection could be read: interfaces count for all of the host, too.
        ({"eth0": 66}, None, {}, {Wire.UNKNOWN: 1.0}),
        ({"eth0": 66, "ib": 66}, None, {"verbs": ["mlx5_0"]}, {Wire.UNKNOWN: 0.5, Wire.INFINIBAND: 0.5}),
        # Nothing was read at all.
        (None, None, {"nccl_log": NET_IB, "gpus": 1}, IB),
        ({"eth0": 3}, {}, {"nccl_log": MNNVL, "gpus": 1}, {Wire.P2P: 1.0}),
    ],
)  # fmt: skip
def test_what_carried_the_bytes(moved: Any, connections: Any, keywords: Any, shares: Any) -> None:
    assert judge(moved, connections, **keywords).shares == pytest.approx(shares)


def test_words_of_the_comparison() -> None:
    assert judge({"eth0": 66}, {"eth0": 64}).evidence == (
        "eth0 carried 66 MiB, the job's TCP connections moved 64 MiB: 1.03 with headers",
    )
    assert judge({"eth0": 900}, {"eth0": 64}).evidence == (
        "eth0 carried 900 MiB, of which the job's TCP connections 64 MiB: others used it as well",
    )
    assert judge({"eth0": 12}, {"eth0": 64}).evidence == (
        "the job's TCP connections moved 64 MiB, but eth0 counted 12 MiB only",
    )
    assert judge({"eth0": "gone"}, {"eth0": 64}).evidence[0].endswith("moved 64 MiB on eth0")
    assert judge({"ib": 3000, "eth0": 2}, {}, verbs=["mlx5_0"]).evidence == (
        "the job's TCP connections moved nothing", "mlx5_0 port 1 carried 2.93 GiB",
        "its processes had mlx5_0 open",
    )  # fmt: skip
    found = judge({"ib": 0, "eth0": 66}, {"eth0": 64}, nccl_log=NET_IB, gpus=1)
    assert found.contradictions == ("NCCL's channels go via NET/IB/0, but the counters show otherwise",)
    assert (
        judge({"ib": 3000}, {}).evidence[-1]
        == "neither a log nor an open RDMA device shows whether this was for the job"
    )


def test_not_judged() -> None:
    for moved, connections, keywords, words in (
        ({"eth0": 3}, {"eth0": 0.5}, {}, "512 KiB moved by its connections and RDMA ports is too little"),
        (None, None, {}, "could not be read (nothing was reported of them)"),
    ):
        assert words in judge(moved, connections, **keywords).unjudged


def test_counters_that_were_not_all_read_in_time() -> None:
    for moved, unread, shares in (
        ({"eth0": 66}, "network interfaces", TCP),
        ({"eth0": 66, "ib": 0}, "network interfaces", {Wire.UNKNOWN: 1.0}),
        ({"eth0": 66}, "RDMA ports", {Wire.UNKNOWN: 1.0}),
    ):
        one = host(moved, counted=0, connections={"eth0": 64})
        late = replace(one, after=replace(one.after, unread=unread))
        found = carried_between(late, bytes_moved(late))
        assert found.shares == shares and "the job's TCP connections moved 64 MiB on eth0" in found.evidence


def test_where_connections_were_lost_the_rest_of_the_interfaces_is_unknown() -> None:
    one = host({"eth0": 5000, "ib": 4}, counted=0, connections={"eth0": 1}, verbs=["mlx5_0"])
    assert carried_between(one, bytes_moved(one)).main is Wire.INFINIBAND
    one = replace(one, connections_missing="No buffer space")
    lost = carried_between(one, bytes_moved(one))
    assert lost.main is Wire.UNKNOWN
    assert lost.evidence[-1] == "not all connections were counted: No buffer space"
    sockets = host({"eth0": 5000}, counted=0, connections={"eth0": 64})
    sockets = replace(sockets, connections_missing="No buffer space")
    assert carried_between(sockets, bytes_moved(sockets)).shares == TCP, "they can have been nothing else"


def test_packets_of_a_soft_device_are_bytes_of_an_interface() -> None:
    one = host({"rxe": 0, "eth0": 70}, counted=0, connections={"eth0": 3}, verbs=["rxe0"])

    def with_packets(snapshot: Any, count: int) -> Any:
        ports = {
            name: replace(port, values={"sent_pkts": count, "rcvd_pkts": count}, driver="")
            for name, port in snapshot.rdma_ports.items()
        }
        return replace(snapshot, rdma_ports=ports)

    counted = replace(one, before=with_packets(one.before, 5), after=with_packets(one.after, 40_005))
    found = carried_between(counted, bytes_moved(counted))
    rest = 70 - 1.06 * 3  # without the connections and their headers
    shares = {Wire.ROCE: rest / (rest + 3), Wire.TCP: 3 / (rest + 3)}
    assert found.shares == pytest.approx(shares, rel=1e-4)
    assert "rxe0 port 1 moved 80,000 packets, and eth0 66.8 MiB with them" in found.evidence
    few = replace(one, before=with_packets(one.before, 5), after=with_packets(one.after, 645))
    found = carried_between(few, bytes_moved(few))
    assert found.shares == pytest.approx({Wire.ROCE: 5 / 8, Wire.TCP: 3 / 8}), (
        "1280 packets are 5 MiB at most"
    )
    idle = replace(one, before=with_packets(one.before, 5), after=with_packets(one.after, 5))
    assert carried_between(idle, bytes_moved(idle)).shares == TCP


def within(moved: Any, connections: Any, **keywords: Any) -> WireShares:
    one = host(moved, counted=0, connections=connections, **keywords)
    return carried_within(one, bytes_moved(one))


def test_within_a_host() -> None:
    found = within({"lo": 66}, {"lo": 64, "eth0": 5})
    assert (found.shares, found.devices, found.exchanged) == (TCP, {Wire.TCP: ("lo",)}, 64 << 20)
    assert found.evidence == ("lo carried 66 MiB, the job's TCP connections moved 64 MiB: 1.03 with headers",)
    for keywords, words in (({"gpus": 2}, "GPUs"), ({"by_memory": ["libmpi.so.40"]}, "libmpi.so.40")):
        found = within({"lo": 66}, {"lo": 64}, **keywords)
        assert (found.shares, found.exchanged) == ({}, 64 << 20), "memory or NVLink may have carried more"
        assert f"the host moved 64 MiB, its processes use {words}, and no log says" in found.unjudged
    by_log = within({"lo": 3}, {"lo": 0.1}, nccl_log=SHM, gpus=2)
    assert (by_log.shares, by_log.by_log_only) == ({Wire.SHM: 1.0}, True)
    assert "the job's TCP connections within the host moved 102 KiB" in by_log.evidence


def test_lines_of_two_hosts_and_of_one() -> None:
    said = "carried 100% of 64 MiB; eth0 carried 66 MiB, "
    said += "the job's TCP connections moved 64 MiB: 1.03 with headers"
    hosts = [host({"eth0": 66}, name=f"h{n}", counted=0, connections={"eth0": 64}) for n in (3, 4)]
    assert lines(judged_transport(hosts)) == tuple(f"h{n} to other hosts: TCP on eth0 {said}" for n in (3, 4))
    alone = judged_transport([host({"lo": 66}, counted=0, connections={"lo": 64})])
    assert lines(alone) == (f"n1, between its ranks: TCP on lo {said.replace('eth0', 'lo')}",)
    gpus = judged_transport([host({"lo": 1}, counted=0, connections={}, nccl_log=SHM, gpus=2)])
    assert "shared memory carried 100% (by logs, not by counters); NCCL's" in lines(gpus)[0]


NUMBERS = st.sampled_from([0.0, 0.4, 3.0, 64.0, 5000.0])


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["eth0", "ib0", "ib", "roce", "lo"]), st.one_of(NUMBERS, st.just("N/A"))),
    st.none() | st.dictionaries(st.sampled_from(["eth0", "ib0", "lo", "other"]), NUMBERS),
    st.sampled_from([[], NET_IB, NET_SOCKET, MNNVL, SHM, ["junk", NET_IB[1][:-1]]]),
    st.booleans(),
    st.booleans(),
)
def test_any_evidence_gives_shares_that_sum_up_or_a_reason(moved, connections, log, shared, opened):
    keywords: dict[str, Any] = {"nccl_log": log, "gpus": 2, "shared_with_others": shared}
    found = judge(moved, connections, verbs=["mlx5_0"] if opened else [], **keywords)
    assert all(part > 0 for part in found.shares.values())
    inside = within(moved, connections, **keywords)
    assert bool(inside.shares) != bool(inside.unjudged)
    lines(judged_transport([host(moved, counted=0, connections=connections, **keywords)] * 2))
