"""Which wire carried the bytes between the ranks of one host.

What went through the engine's own window is shared memory. What was handed to the MPI crossed the loopback
interface, or it did not: then it went through memory. NCCL names the path of each channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.fabric.byte_size import MIB, byte_size
from ringleader.fabric.transport_proof.bytes_moved import BytesMoved
from ringleader.fabric.transport_proof.evidence import HostEvidence
from ringleader.fabric.transport_proof.library_transport import said_within
from ringleader.fabric.transport_proof.proof import WireShares
from ringleader.fabric.transport_proof.wires_without_engine import carried_within
from ringleader.fabric.wires import RDMA, Wire, names_words, too_little

LEAST_JUDGED = MIB
"""Bytes of one library; of less, the loopback interface's other users hide them."""
DID_NOT_CROSS, CROSSED, OTHERS = 0.2, 0.95, 1.25
"""Parts of what was handed over. The loopback interface carried less than the first: not these bytes; from
the second to the third: these; more: other programs' too, among them what ranks print."""


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Bytes that took one way."""

    wire: Wire
    nbytes: float
    evidence: str
    by_log_only: bool = False


def wires_within(host: HostEvidence, moved: BytesMoved, *, only_host: bool) -> WireShares:
    """Return what carried the bytes within a host; ``only_host``: the job has no other."""
    traffic = host.traffic
    if len(host.ranks) == 1:
        what = "one rank on one GPU" if host.gpus == 1 else "one rank"
        return WireShares(unjudged=f"{what}: nothing is exchanged within the host")
    if traffic is None:
        return carried_within(host, moved)
    parts: list[_Part] = []
    if traffic.shared_memory:
        text = f"{byte_size(traffic.shared_memory)} went through the engine's shared memory"
        parts.append(_Part(wire=Wire.SHM, nbytes=traffic.shared_memory, evidence=text))
    for name, one in traffic.libraries.items():
        if one.local >= LEAST_JUDGED and name == "mpi":
            parts += _mpi(host, moved, one.local, only_host)
        elif one.local >= LEAST_JUDGED:
            parts += _said(host, name, one.local)
    judged = sum(part.nbytes for part in parts)
    if judged < LEAST_JUDGED:
        every = traffic.shared_memory + sum(one.local for one in traffic.libraries.values())
        unjudged = too_little(every, "within the host")
        return WireShares(unjudged=unjudged, exchanged=every, exchanged_most=every)
    return _summed(parts, judged)


def _summed(parts: list[_Part], total: float) -> WireShares:
    every = round(total)
    shares: dict[Wire, float] = {}
    for part in parts:
        shares[part.wire] = shares.get(part.wire, 0.0) + part.nbytes / total
    return WireShares(
        exchanged=every,
        exchanged_most=every,
        shares=dict(sorted(shares.items(), key=lambda one: -one[1])),
        devices={Wire.TCP: ("lo",)} if Wire.TCP in shares else {},
        evidence=tuple(dict.fromkeys(part.evidence for part in parts if part.evidence)),
        by_log_only=all(part.by_log_only for part in parts),
    )


def _mpi(host: HostEvidence, moved: BytesMoved, nbytes: int, only_host: bool) -> list[_Part]:
    loopback = moved.loopback
    if moved.missing or loopback is None or loopback.unusable:
        why = moved.missing or (loopback.unusable if loopback is not None else "there is no interface lo")
        return _said(host, "mpi", nbytes, why)
    crossed = max(loopback.moved.sent, loopback.moved.received)
    text = f"{loopback.name} carried {byte_size(crossed)}, the MPI was handed {byte_size(nbytes)}"
    if crossed > DID_NOT_CROSS * nbytes:
        return _by_loopback(host, nbytes, crossed, text)
    by_nic = _by_nic(moved, nbytes) if only_host else None
    if by_nic is not None:
        return [by_nic]
    return [_Part(wire=Wire.SHM, nbytes=nbytes, evidence=text)]


def _by_loopback(host: HostEvidence, nbytes: int, crossed: int, text: str) -> list[_Part]:
    word = said_within(host, "mpi")
    if word.main is Wire.SHM:
        # Any program of the host may use the loopback interface: here the library knows better.
        return [_Part(wire=Wire.SHM, nbytes=nbytes, evidence=f"{word.evidence}; {text}", by_log_only=True)]
    if CROSSED * nbytes <= crossed and (crossed <= OTHERS * nbytes or word.main is Wire.TCP):
        return [_Part(wire=Wire.TCP, nbytes=nbytes, evidence=text)]
    crossed = min(crossed, nbytes)
    if crossed == nbytes:
        return [_Part(wire=Wire.UNKNOWN, nbytes=nbytes, evidence=f"{text}: others used it as well")]
    return [
        _Part(wire=Wire.SHM, nbytes=nbytes - crossed, evidence=text),
        _Part(wire=Wire.TCP if word.main is Wire.TCP else Wire.UNKNOWN, nbytes=crossed, evidence=text),
    ]


def _by_nic(moved: BytesMoved, nbytes: int) -> _Part | None:
    """Return that the bytes went out of an RDMA port and in again, where that is what the ports moved."""
    for wire in RDMA & set(moved.by_wire):
        # Each byte is counted when it leaves and when it comes in.
        if moved.by_wire[wire] >= 2 * CROSSED * nbytes:
            text = (
                f"{names_words(moved.devices[wire])} carried {byte_size(moved.by_wire[wire])} within the host"
            )
            return _Part(wire=wire, nbytes=nbytes, evidence=text)
    return None


def _said(host: HostEvidence, library: str, nbytes: int, why: str = "") -> list[_Part]:
    word = said_within(host, library)
    words = "; ".join(filter(None, [why, word.evidence]))
    if not word.shares:
        text = words or f"nothing tells by which way {library.upper()} moved {byte_size(nbytes)}"
        return [_Part(wire=Wire.UNKNOWN, nbytes=nbytes, evidence=text, by_log_only=True)]
    return [
        _Part(wire=wire, nbytes=part * nbytes, evidence=words, by_log_only=True)
        for wire, part in word.shares.items()
    ]
