"""The proof of whole jobs, in lines: what is printed, and what is not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.unit.fabric.transport_evidence import between, host, local

from ringleader.fabric.facts import document, from_document
from ringleader.fabric.transport_proof.evidence import Exchanged
from ringleader.fabric.transport_proof.judged_transport import judged_transport
from ringleader.fabric.transport_proof.lines import lines
from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.fabric.transport_proof.wire_words import names_words, part_words
from ringleader.fabric.wires import Wire

GDR = "Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA"


def test_two_hosts_over_tcp() -> None:
    proof = judged_transport(
        [host({"eth0": 257, "lo": 1}, name=f"mine-h{n}", mpi=between(256)) for n in (1, 2)]
    )
    assert lines(proof) == tuple(
        f"mine-h{n} to other hosts: TCP on eth0 100% of 256 MiB; "
        "eth0 carried 257 MiB, the engine exchanged 256 MiB: 1.00 with headers"
        for n in (1, 2)
    )
    assert proof.between == {Wire.TCP: 1.0}


@pytest.mark.parametrize(
    "one",
    [
        host({"lo": 0.1}, shared=100, mpi=local(0.9)),
        host({"lo": 0.1}, shared=3.5, mpi=local(15)),
        host({"lo": 60}, shared=3.5, mpi=local(15)),
        host({"lo": 6}, shared=3.5, mpi=local(6)),
        host(None, mpi=local(500)),
        host({"lo": 500}, gloo=local(500)),
        host({"lo": 1}, ranks=1),
        host(None, counted=0),
    ],
)
def test_a_job_on_one_host_with_nothing_wrong_says_nothing(one: object) -> None:
    proof = judged_transport([one])  # type: ignore[list-item]
    assert lines(proof) == ()
    assert len(lines(proof, verbose=True)) == 1


def test_a_job_on_one_host_whose_messages_go_by_tcp_says_so() -> None:
    proof = judged_transport([host({"lo": 101}, mpi=local(100))])
    assert lines(proof) == ("n1: 100% of the bytes within this host went by TCP on lo, not by shared memory",)


def test_rdma_that_is_there_and_was_not_used() -> None:
    proof = judged_transport(
        [host({"ib": 0, "eth0": 260}, mpi=between(256)), host({"eth0": 260}, mpi=between(256))]
    )
    found = lines(proof)
    assert len(found) == 3
    assert found[1] == "n1: 100% went by TCP although there is mlx5_0 port 1"


def test_gpudirect_stands_in_the_line() -> None:
    one = host({"ib": 260, "eth0": 1}, gpus=2, nccl_log=[GDR], nccl=between(256))
    found = lines(judged_transport([one, replace(one, host="n2", nccl=())]))
    assert (
        found[0].endswith("; GPUDirect RDMA used")
        and "RDMA over InfiniBand on mlx5_0 port 1 100%" in found[0]
    )
    assert "GPUDirect" not in found[1]


def test_pairs_of_hosts() -> None:
    one = host({"eth0": 257}, mpi=between(256))
    assert one.traffic is not None
    one = replace(one, traffic=replace(one.traffic, peers={"n2": Exchanged(sent=5, received=6)}))
    (pair,) = judged_transport([one, host({"eth0": 257}, name="n2", mpi=between(256))]).pairs
    assert (pair.host, pair.peer, pair.exchanged.total, pair.wire) == ("n1", "n2", 11, Wire.TCP)


def test_a_job_without_evidence() -> None:
    assert lines(judged_transport([])) == ()


def test_the_proof_survives_json() -> None:
    proof = judged_transport(
        [host({"ib": 128, "eth0": 128, "lo": 1}, shared=5, mpi=between(256)), host(name="n2")]
    )
    assert from_document(TransportProof, json.loads(json.dumps(document(proof)))) == proof


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (1.0, "100%"),
        (0.99996, "100%"),
        (0.9996, "99.9%"),
        (0.874, "87.4%"),
        (0.5, "50%"),
        (0.0001, "<0.1%"),
        (0, "0%"),
    ],
)
def test_parts_in_words(part: float, words: str) -> None:
    assert part_words(part) == words


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (list("abc"), "a, b and c"),
        (list("abcde"), "a, b and 3 more"),
    ],
)
def test_names_in_words(names: list[str], words: str) -> None:
    assert names_words(names) == words
