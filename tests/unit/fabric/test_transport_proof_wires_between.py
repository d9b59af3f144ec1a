"""What carried the bytes between hosts: counters first, logs where counters leave it open."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fabric.transport_evidence import between, host

from ringleader.fabric.transport_proof.bytes_moved import bytes_moved
from ringleader.fabric.transport_proof.evidence import HostEvidence
from ringleader.fabric.transport_proof.proof import WireShares
from ringleader.fabric.transport_proof.wires_between import wires_between
from ringleader.fabric.wires import Wire

RC = ["UCX  INFO  0x1 inter-node cfg#3 tag(rc_mlx5/mlx5_0:1)"]
UCX_TCP = ["UCX  INFO  0x1 inter-node cfg#3 tag(tcp/eth0)"]
OB1 = {"transport": {"pml": "ob1", "btls": ("tcp",)}}
ONE_PATH = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/"
NET_IB = ["NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.1<0>", ONE_PATH + "IB/0"]
NET_SOCKET = ["NET/Socket : Using [0]eth0:10.0.0.1<0>", ONE_PATH + "Socket/0"]
NET_SOCKET_IB0 = ["NET/Socket : Using [0]ib0:10.0.0.1<0>", ONE_PATH + "Socket/0"]


def judge(*arguments: Any, **keywords: Any) -> WireShares:
    one = host(*arguments, **keywords)
    found = wires_between(one, bytes_moved(one))
    assert not found.shares or sum(found.shares.values()) == pytest.approx(1.0)
    assert bool(found.shares) != bool(found.unjudged)
    return found


def test_counters_alone() -> None:
    for moved, shares in (
        # One wire moved what was exchanged.
        ({"eth0": 257, "ib": 0}, {Wire.TCP: 1.0}),
        ({"ib": 260, "eth0": 1}, {Wire.INFINIBAND: 1.0}),
        ({"efa": 270, "eth0": 1}, {Wire.EFA: 1.0}),
        # Sockets on InfiniBand show in the port's counters too.
        ({"ib0": 260, "ib": 268, "eth0": 1}, {Wire.IPOIB: 1.0}),
        # Others used the same wire as well.
        # A data set came by TCP meanwhile; storage is on RDMA.
        ({"ib": 260, "eth0": 900}, {Wire.INFINIBAND: 1.0}),
        # Both carried some.
        ({"ib": 128, "eth0": 128}, {Wire.INFINIBAND: 0.5, Wire.TCP: 0.5}),
        # Nothing, or too little, explains it.
        ({"eth0": 1, "ib": 1}, {Wire.UNKNOWN: 1.0}),
        ({"eth0": 64}, {Wire.TCP: 0.25, Wire.UNKNOWN: 0.75}),
        # Either may have: no log decides.
        ({"ib": 260, "eth0": 260}, {Wire.UNKNOWN: 1.0}),
        # One may have carried all, the other at most half.
        ({"ib": 900, "eth0": 128}, {Wire.INFINIBAND: 0.5, Wire.UNKNOWN: 0.5}),
    ):
        assert judge(moved, mpi=between(256)).shares == pytest.approx(shares)


def test_logs_beside_counters():
    for moved, logs, shares, by_log_only, contradicts in (
        ({"ib": 260, "eth0": 260}, {"ucx_log": RC}, {Wire.INFINIBAND: 1.0}, False, False),
        ({"ib": 260, "eth0": 260}, {"ucx_log": UCX_TCP}, {Wire.TCP: 1.0}, False, False),
        ({"ib": 260, "eth0": 260}, OB1, {Wire.TCP: 1.0}, False, False),
        # Counters win over the log, and it is said.
        ({"ib": 0, "eth0": 257}, {"ucx_log": RC}, {Wire.TCP: 1.0}, False, True),
        ({"ib": 260, "eth0": 1}, {"ucx_log": UCX_TCP}, {Wire.INFINIBAND: 1.0}, False, True),
        # No counters: only the log.
        (None, {"ucx_log": RC}, {Wire.UNKNOWN: 1.0}, False, False),
        (None, {}, {Wire.UNKNOWN: 1.0}, False, False),
        # The port's counters say nothing.
        ({"ib": "N/A (no PMA)", "eth0": 1}, {"ucx_log": RC}, {Wire.INFINIBAND: 1.0}, True, False),
        ({"ib": "N/A (no PMA)", "eth0": 257}, {"ucx_log": RC}, {Wire.TCP: 1.0}, False, True),
        # A soft device's packets are the interface's.
        (
            {"rxe": "N/A", "eth0": 270},
            {"ucx_log": ["UCX  INFO  0x1 inter-node cfg#3 tag(rc_verbs/rxe0:1)"]},
            {Wire.ROCE: 1.0},
            True,
            False,
        ),
    ):
        found = judge(moved, mpi=between(256), **logs)
        assert found.shares == pytest.approx(shares)
        assert found.by_log_only is by_log_only
        assert bool(found.contradictions) is contradicts


SOFT_ROCE = ["UCX  INFO  0x1 inter-node cfg#3 tag(rc_verbs/rxe0:1)"]


def soft(eth0: float, packets: int, **keywords: Any) -> HostEvidence:
    one = host({"rxe": "N/A", "eth0": eth0}, mpi=between(256), **keywords)
    counted = [
        replace(each, rdma_ports={"rxe0/1": replace(each.rdma_ports["rxe0/1"], values=values)})
        for each, values in (
            (one.before, {"sent_pkts": 5, "rcvd_pkts": 7}),
            (one.after, {"sent_pkts": 5 + packets // 2, "rcvd_pkts": 7 + packets // 2}),
        )
    ]
    return replace(one, before=counted[0], after=counted[1])


def test_packets_of_soft_roce():
    for eth0, packets, log, wire, contradicts in (
        (261, 69_000, SOFT_ROCE, Wire.ROCE, False),
        (261, 69_000, UCX_TCP, Wire.TCP, False),
        (261, 69_000, [], Wire.UNKNOWN, False),
        # So few packets, or an interface so idle, have not carried it, whatever the log says.
        (261, 200, SOFT_ROCE, Wire.TCP, True),
        (261, 200, [], Wire.TCP, False),
        (1, 69_000, SOFT_ROCE, Wire.UNKNOWN, False),
    ):
        one = soft(eth0, packets, ucx_log=log)
        found = wires_between(one, bytes_moved(one))
        assert max(found.shares, key=lambda each: found.shares[each]) is wire and not found.by_log_only
        assert bool(found.contradictions) is contradicts
        assert (
            wire is not Wire.ROCE or "rxe0 port 1 moved 69,000 packets, and eth0 261 MiB" in found.evidence[0]
        )


def test_nccl() -> None:
    for moved, lines, wire in (
        ({"ib": 300, "eth0": 300}, NET_IB, Wire.INFINIBAND),
        ({"ib": 300, "eth0": 300}, NET_SOCKET, Wire.TCP),
        ({"ib": 300, "ib0": 290, "eth0": 1}, NET_SOCKET_IB0, Wire.IPOIB),
        (None, NET_IB, Wire.INFINIBAND),
        (None, ["Using network AWS Libfabric"], Wire.EFA),
    ):
        assert judge(moved, nccl_log=lines, gpus=2, nccl=between(200, 800)).main is wire


def test_nvlink_between_hosts_is_not_counted_by_anything() -> None:
    lines = ["Channel 00/0 : 1[1] -> 2[2] via P2P/MNNVL", "Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL"]
    found = judge({"ib": 1, "eth0": 1}, nccl_log=lines, gpus=2, nccl=between(200, 800))
    assert found.shares == {Wire.P2P: 1.0} and found.by_log_only


@pytest.mark.parametrize(
    ("mib", "tcp", "logs", "wire"),
    [(2, 2, {}, Wire.INFINIBAND), (2, 2, {"ucx_log": UCX_TCP}, Wire.TCP), (20, 20, {}, Wire.UNKNOWN)],
)
def test_a_jobs_own_tcp_is_not_taken_for_its_bytes(mib, tcp, logs, wire):
    assert judge({"ib": mib, "eth0": tcp}, mpi=between(mib), **logs).main is wire


def test_not_judged_and_what_is_known_without_counters() -> None:
    few = judge({"eth0": 500}, mpi=between(0.5)).unjudged
    assert "512 KiB with other hosts, which is too little" in few
    assert "nothing with other hosts" in judge({"eth0": 500}).unjudged
    assert judge(None, gloo=between(50)).shares == {Wire.TCP: 1.0}
    found = judge({"ib": 900, "eth0": 90}, mpi=between(256), ranks=8, counted=6)
    assert found.shares == {Wire.INFINIBAND: 1.0}
    assert any("2 of 8 ranks reported nothing" in words for words in found.evidence)


def test_bounds_of_collectives_widen_what_matches() -> None:
    assert judge({"ib": 500, "eth0": 90}, mpi=between(256, 512)).shares == {Wire.INFINIBAND: 1.0}
    assert judge({"ib": 900, "eth0": 90}, mpi=between(256, 512)).shares != {Wire.INFINIBAND: 1.0}


def test_words_of_the_comparison() -> None:
    shared = judge({"eth0": 900}, mpi=between(256)).evidence[0]
    assert shared == "eth0 carried 900 MiB, of which the engine's 256 MiB: others used it as well"
    idle = judge({"eth0": 257, "ib": 0}, mpi=between(256)).evidence
    assert "the RDMA ports moved next to nothing" in idle


AMOUNT = st.floats(0, 4000) | st.just("N/A")


@given(
    st.dictionaries(st.sampled_from(["ib", "roce", "efa", "ib0", "eth0", "eth1"]), AMOUNT),
    st.floats(0, 2000),
    st.floats(1, 20),
    st.sampled_from([{}, {"ucx_log": RC}, {"ucx_log": UCX_TCP}, OB1]),
)
def test_shares_are_parts_of_one(moved, mib, factor, said):
    found = judge(moved, mpi=between(mib, mib * factor), **said)
    assert all(part >= 0 for part in found.shares.values())
