"""What carried the bytes within a host: its loopback interface, or memory."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fabric.transport_evidence import host, local

from ringleader.fabric.transport_proof.bytes_moved import bytes_moved
from ringleader.fabric.transport_proof.proof import WireShares
from ringleader.fabric.transport_proof.wires_within import wires_within
from ringleader.fabric.wires import Wire

SYSV = ["UCX  INFO  0x1 intra-node cfg#1 tag(sysv/memory cma/memory)"]
LO = ["UCX  INFO  0x1 intra-node cfg#1 tag(tcp/lo)"]
RAILS = ["UCX  INFO  0x1 intra-node cfg#5 tag(sysv/memory rc_mlx5/mlx5_0:1 cuda_ipc/cuda)"]


def judge(*arguments: Any, only_host: bool = True, **keywords: Any) -> WireShares:
    one = host(*arguments, **keywords)
    found = wires_within(one, bytes_moved(one), only_host=only_host)
    assert not found.shares or sum(found.shares.values()) == pytest.approx(1.0)
    assert bool(found.shares) != bool(found.unjudged)
    return found


def test_shares() -> None:
    for moved, keywords, shares in (
        ({"lo": 1}, {"shared": 100}, {Wire.SHM: 1.0}),
        (None, {"shared": 100}, {Wire.SHM: 1.0}),
        # A little by MPI, as every job has: not a word about it.
        ({"lo": 0.2}, {"shared": 100, "mpi": local(15)}, {Wire.SHM: 1.0}),
        ({"lo": 101}, {"mpi": local(100)}, {Wire.TCP: 1.0}),
        ({"lo": 101}, {"shared": 100, "mpi": local(100)}, {Wire.SHM: 0.5, Wire.TCP: 0.5}),
        ({"lo": 500}, {"mpi": local(100)}, {Wire.UNKNOWN: 1.0}),
        # Others use lo too: the library knows that it was not MPI.
        ({"lo": 500}, {"mpi": local(100), "ucx_log": SYSV}, {Wire.SHM: 1.0}),
        ({"lo": 50}, {"mpi": local(100)}, {Wire.SHM: 0.5, Wire.UNKNOWN: 0.5}),
        ({"lo": 50}, {"mpi": local(100), "ucx_log": LO}, {Wire.SHM: 0.5, Wire.TCP: 0.5}),
        # No counters of lo.
        (None, {"mpi": local(100), "ucx_log": SYSV}, {Wire.SHM: 1.0}),
        (None, {"mpi": local(100), "ucx_log": LO}, {Wire.TCP: 1.0}),
        (None, {"mpi": local(100), "ucx_log": RAILS}, {Wire.SHM: 1.0}),
        (None, {"mpi": local(100)}, {Wire.UNKNOWN: 1.0}),
        # Out of the NIC and in again.
        ({"lo": 1, "ib": 205}, {"mpi": local(100)}, {Wire.INFINIBAND: 1.0}),
        ({"lo": 1}, {"gloo": local(100)}, {Wire.TCP: 1.0}),
    ):
        assert judge(moved, **keywords).shares == pytest.approx(shares)


def test_nccl() -> None:
    for lines, shares in (
        (["Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read"], {Wire.P2P: 1.0}),
        (["Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct"], {Wire.SHM: 1.0}),
        (["Using network IB"], {Wire.UNKNOWN: 1.0}),
    ):
        assert judge({"lo": 1}, nccl_log=lines, gpus=2, nccl=local(100)).shares == shares


def test_not_judged() -> None:
    for keywords, words in (
        ({"ranks": 1}, "one rank: nothing"),
        ({"ranks": 1, "gpus": 1}, "one rank on one GPU"),
        ({"counted": 0}, "TCP connections could not be read (nothing was reported of them)"),
        ({"counted": 0, "connections": {"lo": 0.5}}, "moved 512 KiB, and no log says what else"),
        ({"shared": 0.1}, "102 KiB within the host, which is too little"),
    ):
        assert words in judge({"lo": 5}, **keywords).unjudged


def test_with_other_hosts_the_ports_say_nothing_about_the_bytes_within() -> None:
    assert judge({"lo": 1, "ib": 900}, mpi=local(100), only_host=False).shares == {Wire.SHM: 1.0}


@given(
    st.dictionaries(st.sampled_from(["lo", "ib", "eth0"]), st.floats(0, 2000) | st.just("N/A")),
    st.floats(0, 100),
    st.floats(0, 100),
    st.sampled_from([[], SYSV, LO]),
)
def test_shares_are_parts_of_one(moved: dict[str, Any], shared: float, mpi: float, ucx: list[str]) -> None:
    found = judge(moved, shared=shared, mpi=local(mpi), ucx_log=ucx)
    assert all(part >= 0 for part in found.shares.values())
