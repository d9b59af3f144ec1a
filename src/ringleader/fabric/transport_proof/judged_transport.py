"""From the evidence of all hosts to the proof."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ringleader.fabric.byte_size import MIB
from ringleader.fabric.transport_proof.bytes_moved import BytesMoved, bytes_moved
from ringleader.fabric.transport_proof.evidence import HostEvidence
from ringleader.fabric.transport_proof.library_transport import gpudirect_use
from ringleader.fabric.transport_proof.proof import (
    HostProof,
    PairProof,
    TransportProof,
    WireShares,
)
from ringleader.fabric.transport_proof.wires_between import wires_between
from ringleader.fabric.transport_proof.wires_within import wires_within
from ringleader.fabric.transport_proof.wires_without_engine import carried_between, exchanged_with
from ringleader.fabric.wires import WIRE_WORDS, Wire, names_words, part_words

LEAST_LOCAL = 8 * MIB
"""Bytes handed to the MPI within a host: ranks that print as much look the same on the loopback interface."""
SLOW_PART = 0.05
"""A wire that is slow, and carried a larger part than this, is worth a warning."""


def judged_transport(evidence: Sequence[HostEvidence]) -> TransportProof:
    """Return which wire carried the bytes of a job, whose hosts gathered ``evidence``."""
    hosts = tuple(_host(one, only=len(evidence) == 1) for one in evidence)
    return TransportProof(
        hosts=hosts,
        pairs=tuple(_pairs(evidence, hosts)),
        between=_overall(host.between for host in hosts),
        within=_overall(host.within for host in hosts),
    )


def _host(host: HostEvidence, *, only: bool) -> HostProof:
    moved = bytes_moved(host)
    within = wires_within(host, moved, only_host=only)
    judge = carried_between if host.traffic is None else wires_between
    between = WireShares(unjudged="the job has one host") if only else judge(host, moved)
    return HostProof(
        host=host.host,
        ranks=host.ranks,
        within=within,
        between=between,
        gpudirect=gpudirect_use(host),
        carried=(*moved.carried, *([moved.loopback] if moved.loopback is not None else [])),
        shared_with_others=host.shared_with_others,
        warnings=tuple(_warnings(host, moved, within, between)),
    )


def _warnings(
    host: HostEvidence, moved: BytesMoved, within: WireShares, between: WireShares
) -> Iterable[str]:
    local = host.traffic.libraries.get("mpi") if host.traffic is not None else None
    slow = within.shares.get(Wire.TCP, 0.0)
    if slow > SLOW_PART and local is not None and local.local >= LEAST_LOCAL:
        yield f"{part_words(slow)} of the bytes within this host went by TCP on lo, not by shared memory"
    sockets = sum(between.shares.get(wire, 0.0) for wire in (Wire.TCP, Wire.IPOIB))
    if sockets > SLOW_PART and moved.idle_ports:
        names = names_words(moved.idle_ports)
        yield f"{part_words(sockets)} went by TCP although there is {names}, which carried nothing"
    yield from between.contradictions
    yield from within.contradictions


def _pairs(evidence: Sequence[HostEvidence], hosts: Sequence[HostProof]) -> Iterable[PairProof]:
    for gathered, proof in zip(evidence, hosts, strict=True):
        shares = proof.between.shares
        wire = next(iter(shares)) if len(shares) == 1 else Wire.UNKNOWN
        peers = exchanged_with(gathered) if gathered.traffic is None else gathered.traffic.peers
        for peer, exchanged in peers.items():
            yield PairProof(host=gathered.host, peer=peer, exchanged=exchanged, wire=wire)


def _overall(every: Iterable[WireShares]) -> Mapping[Wire, float]:
    """Return the shares of all hosts' bytes, each host by what it exchanged."""
    found: dict[Wire, float] = {}
    for one in every:
        for wire, part in one.shares.items():
            found[wire] = found.get(wire, 0.0) + part * max(1, one.exchanged)
    total = sum(found.values())
    return {wire: part / total for wire, part in sorted(found.items(), key=lambda one: -one[1])}


def summary(shares: Mapping[Wire, float]) -> str:
    """Return shares in words: ``RDMA over InfiniBand 99.2%, TCP 0.8%``."""
    return ", ".join(f"{WIRE_WORDS[wire]} {part_words(part)}" for wire, part in shares.items())
