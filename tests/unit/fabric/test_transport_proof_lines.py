"""The proof of whole jobs, in lines: what is printed, and what is not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fabric.transport_evidence import between, host, local

from ringleader.dataclass_json import document, from_document
from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.transport_proof.evidence import (
    CounterSnapshot,
    EngineTraffic,
    Exchanged,
    HostEvidence,
    LibraryTraffic,
    LogLines,
    NetDeviceCounters,
    PortCounters,
)
from ringleader.fabric.transport_proof.judged_transport import judged_transport
from ringleader.fabric.transport_proof.proof import TransportProof, lines
from ringleader.fabric.transport_proof.requirement import judge_requirement, parse_requirement
from ringleader.fabric.wires import Wire, names_words, part_words

NAMES = st.sampled_from(["tx_bytes", "rx_bytes", "port_xmit_data", "port_rcv_data"])
VALUES = st.dictionaries(NAMES, st.integers(-1, 1 << 65))
SNAPSHOT = st.builds(
    CounterSnapshot,
    at=st.just(0.0),
    rdma_ports=st.dictionaries(
        st.sampled_from(["mlx5_0/1", "odd"]),
        st.builds(
            PortCounters,
            values=VALUES,
            link_layer=st.sampled_from(["InfiniBand", "Ethernet", ""]),
            node_type=st.sampled_from([1, 4, 7, None]),
            driver=st.sampled_from(["mlx5_core", ""]),
            netdevs=st.sampled_from([(), ("eth0",)]),
        ),
    ),
    net_devices=st.dictionaries(
        st.sampled_from(["eth0", "ib0", "lo"]),
        st.builds(
            NetDeviceCounters,
            values=VALUES,
            kind=st.sampled_from(["ethernet", "infiniband", "loopback", "other"]),
            is_virtual=st.booleans(),
            lower=st.sampled_from([(), ("eth0",), ("lo",)]),
        ),
    ),
)
LOG = st.builds(
    LogLines,
    rank=st.integers(0, 3),
    lines=st.lists(
        st.sampled_from(
            [
                "NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA",
                "NCCL INFO Using network Socket",
                "NCCL INFO Channel 00/0 : 0[0] -> 1[0] via P2P/MNNVL",
                "UCX  INFO  0x1 inter-node cfg#3 tag(rc_mlx5/mlx5_0:1)",
                "junk",
            ]
        )
    ).map(tuple),
)


def test_two_hosts_over_tcp() -> None:
    proof = judged_transport(
        [host({"eth0": 257, "lo": 1}, name=f"mine-h{n}", mpi=between(256)) for n in (1, 2)]
    )
    assert lines(proof) == tuple(
        f"mine-h{n} to other hosts: TCP on eth0 carried 100% of 256 MiB; "
        "eth0 carried 257 MiB, the engine exchanged 256 MiB: 1.00 with headers"
        for n in (1, 2)
    )
    assert proof.between == {Wire.TCP: 1.0}


def test_a_job_on_one_host_with_nothing_wrong_says_nothing() -> None:
    for one in (
        host({"lo": 0.1}, shared=100, mpi=local(0.9)),
        host({"lo": 60}, shared=3.5, mpi=local(15)),
        host(None, mpi=local(500)),
        host({"lo": 500}, gloo=local(500)),
        host({"lo": 1}, ranks=1),
        host(None, counted=0),
    ):
        proof = judged_transport([one])
        assert lines(proof) == ()


def test_a_job_on_one_host_whose_messages_go_by_tcp_says_so() -> None:
    proof = judged_transport([host({"lo": 101}, mpi=local(100))])
    assert lines(proof) == ("n1: 100% of the bytes within this host went by TCP on lo, not by shared memory",)


def test_bounds_are_told_as_bounds() -> None:
    (line,) = lines(judged_transport([host({"eth0": 300}, mpi=between(256, 512)), host(name="n2")]))
    assert (
        "TCP on eth0 carried 100% of at least 256 MiB; eth0 carried 300 MiB, the engine exchanged 256 MiB to"
        in line
    )


def test_rdma_that_is_there_and_was_not_used() -> None:
    proof = judged_transport(
        [host({"ib": 0, "eth0": 260}, mpi=between(256)), host({"eth0": 260}, mpi=between(256))]
    )
    found = lines(proof)
    assert len(found) == 3
    assert found[1] == "n1: 100% went by TCP although there is mlx5_0 port 1, which carried nothing"


@pytest.mark.parametrize(("state", "moved"), [("DOWN", 0), ("ACTIVE", 3)])
def test_a_port_that_is_down_or_at_work_is_not_idle(state: str, moved: float) -> None:
    one = host({"ib": moved, "eth0": 260}, state=state, mpi=between(256))
    assert not any("although" in line for line in lines(judged_transport([one, host(name="n2")])))


COUNT = st.integers(0, 1 << 70)
EVIDENCE = st.builds(
    HostEvidence,
    host=st.just("n1"),
    ranks=st.lists(st.integers(0, 9), max_size=4).map(tuple),
    gpus=st.integers(0, 8),
    before=st.none() | SNAPSHOT,
    after=st.none() | SNAPSHOT,
    traffic=st.none()
    | st.builds(
        EngineTraffic,
        shared_memory=COUNT,
        libraries=st.dictionaries(
            st.sampled_from(["mpi", "nccl", "gloo", "other"]),
            st.builds(
                LibraryTraffic,
                local=COUNT,
                handed=COUNT,
                sent_least=COUNT,
                sent_most=COUNT,
                received_least=COUNT,
                received_most=COUNT,
            ),
        ),
        peers=st.dictionaries(st.just("n2"), st.builds(Exchanged, sent=COUNT, received=COUNT)),
        ranks_counted=st.integers(0, 9),
    ),
    nccl=st.lists(LOG, max_size=2).map(tuple),
    ucx=st.lists(LOG, max_size=2).map(tuple),
)


@given(st.lists(EVIDENCE, max_size=3))
def test_no_evidence_breaks_the_proof(evidence: list[HostEvidence]) -> None:
    proof = judged_transport(evidence)
    for one in evidence:
        assert from_document(HostEvidence, json.loads(json.dumps(document(one)))) == one
    assert len(lines(proof)) >= sum(bool(one.between.shares) for one in proof.hosts)
    judge_requirement(parse_requirement(["rdma,gdr,shm"]), proof)
    for wires in [wires for judged in proof.hosts for wires in (judged.between, judged.within)]:
        assert bool(wires.shares) != bool(wires.unjudged)
        assert all(part >= 0 for part in wires.shares.values())
        assert not wires.shares or sum(wires.shares.values()) == pytest.approx(1.0)
    assert from_document(TransportProof, json.loads(json.dumps(document(proof)))) == proof


def test_parts_and_names_in_words() -> None:
    for part, words in ((1, "100%"), (0.9996, "99.9%"), (0.874, "87.4%"), (0.0001, "<0.1%"), (0, "0%")):
        assert part_words(part) == words
    for names, words in (("", ""), ("a", "a"), ("ab", "a and b"), ("abc", "a, b and c")):
        assert names_words(list(names)) == words
    assert names_words(list("abcde")) == "a, b and 3 more"
    sizes = {0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 12800: "12.5 KiB", (1 << 30) - 1: "1 GiB"}
    assert {nbytes: byte_size(nbytes) for nbytes in sizes} == sizes
