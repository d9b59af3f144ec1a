"""``--require``: its words, what is known at the start, and the verdict at the end."""

import pytest
from tests.unit.fabric import machines
from tests.unit.fabric.transport_evidence import between, host, local

from ringleader.errors import RequestError
from ringleader.fabric.facts import Gpu, HostFacts
from ringleader.fabric.transport_proof.judged_transport import judged_transport
from ringleader.fabric.transport_proof.requirement import (
    Requirement,
    judge_requirement,
    known_at_start,
    parse_requirement,
)
from ringleader.fabric.wires import RDMA, Wire


def test_words():
    for values, allowed_between, allowed_within, gpudirect in (
        (["rdma"], RDMA, set(), False),
        (["RDMA", "roce"], {Wire.ROCE}, set(), False),
        (["gdr"], RDMA, set(), True),
        (["efa,gdr"], {Wire.EFA}, set(), True),
        (["tcp, shm"], {Wire.TCP, Wire.IPOIB}, {Wire.SHM}, False),
        (["p2p"], set(), {Wire.P2P}, False),
    ):
        found = parse_requirement(values)
        assert (found.between, found.within, found.gpudirect) == (allowed_between, allowed_within, gpudirect)


def test_words_that_cannot_hold() -> None:
    for values, faults in (
        ([""], 1),
        (["rmda,shn"], 2),
        (["rdma,tcp"], 1),
        (["tcp,gdr"], 1),
        (["shm,p2p"], 1),
        (["shm,p2p,tcp,efa,x"], 3),
    ):
        with pytest.raises(RequestError) as caught:
            parse_requirement(values)
        assert len(caught.value.faults) == faults


def facts(*, gpus: int = 0, rdma: bool = False, state: str = "ACTIVE") -> HostFacts:
    cards = tuple(Gpu(index=index, pci_address="") for index in range(gpus))
    devices = (machines.rdma("mlx5_0", machines.port(state=state)),) if rdma else ()
    return machines.host(gpus=cards, devices=devices)


def test_known_at_start():
    for word, hosts, ranks, expected in (
        ("rdma", {"a": facts(), "b": facts()}, {"a": 2, "b": 2}, ["has no RDMA device"] * 2),
        ("rdma", {"a": facts(rdma=True, state="DOWN")}, {"a": 2, "b": 2}, ["no port can be used: mlx5_0:1"]),
        ("rdma", {"a": facts()}, {"a": 2}, ["this job has one"]),
        ("shm", {"a": facts()}, {"a": 1, "b": 1}, ["each host has one rank"]),
        ("shm", {"a": facts()}, {"a": 2}, []),
        ("p2p", {"a": facts(gpus=1)}, {"a": 2}, ["it has 1 GPU"]),
        ("gdr", {"a": facts()}, {"a": 1, "b": 1}, ["has no RDMA device", "has no GPU"]),
        ("rdma", {}, {"a": 1, "b": 1}, []),
    ):
        found = known_at_start(parse_requirement([word]), hosts, ranks)
        assert len(found) == len(expected)
        assert all(words in fault.what for words, fault in zip(expected, found, strict=True))


def test_a_slower_wire_that_is_usable_may_be_required() -> None:
    slower = machines.rdma("mlx5_1", machines.port("Ethernet", gbits=100))
    both = machines.host(devices=(machines.rdma("mlx5_0", machines.port()), slower))
    for word, count in (("infiniband", 0), ("roce", 0), ("rdma", 0), ("efa", 1)):
        assert len(known_at_start(parse_requirement([word]), {"a": both}, {"a": 1, "b": 1})) == count, word


IB = {"ib": 260, "eth0": 1, "lo": 1}
GDR_LINE = "Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA"


def test_verdict_at_the_end():
    for words, moved, keywords, expected in (
        ("infiniband", IB, {"mpi": between(256)}, []),
        ("roce", IB, {"mpi": between(256)}, ["RDMA over InfiniBand 100% instead of roce"]),
        (
            "rdma",
            {"eth0": 257, "ib": 0},
            {"mpi": between(256)},
            ["TCP 100% instead of rdma: eth0 carried 257 MiB"],
        ),
        ("rdma", {"ib0": 257, "ib": 262}, {"mpi": between(256)}, ["IPoIB) 100% instead of rdma"]),
        ("rdma", {"eth0": 1}, {"mpi": between(256)}, ["not shown: 100% went by an unknown wire"]),
        ("rdma", IB, {"mpi": between(0.5)}, ["not shown: it exchanged 512 KiB"]),
        ("rdma", {"eth0": 70}, {"counted": 0, "connections": {"eth0": 64}}, ["TCP 100% instead of rdma"]),
        ("gdr", IB, {"nccl": between(256), "gpus": 2, "nccl_log": [GDR_LINE]}, []),
        ("gdr", IB, {"mpi": between(256), "gpus": 2}, ["GPUDirect RDMA is not shown"]),
        (
            "gdr",
            IB,
            {"nccl": between(256), "gpus": 2, "nccl_log": [GDR_LINE[:-7]]},
            ["RDMA was not used: 0 of 1"],
        ),
        ("shm", IB, {"mpi": between(256), "shared": 100}, []),
        ("shm", {"lo": 100}, {"mpi": local(100)}, ["TCP 100% instead of shm"]),
        ("rdma,shm", {"lo": 100, "eth0": 9}, {"counted": 0}, ["to other hosts is not shown", "within"]),
    ):
        good = host({**IB, "lo": 1}, name="good", shared=100, mpi=between(256))
        proof = judged_transport([host(moved, name="judged", **keywords), good])
        found = [one for one in judge_requirement(parse_requirement([words]), proof) if one.where == "judged"]
        assert len(found) == len(expected)
        assert all(text in fault.what for text, fault in zip(expected, found, strict=True))


def test_a_job_without_evidence_shows_nothing() -> None:
    (fault,) = judge_requirement(Requirement(words=("rdma",), between=RDMA), judged_transport([]))
    assert "not shown" in fault.what
