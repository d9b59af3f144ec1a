"""Which wire carried a job's bytes, host by host: values, and lines for people of them.

``judged_transport`` makes the values of the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.transport_proof.bytes_moved import Carried
from ringleader.fabric.transport_proof.evidence import Exchanged
from ringleader.fabric.wires import WIRE_WORDS, Wire, names_words, part_words


@dataclass(frozen=True, kw_only=True)
class WireShares:
    """What carried a number of bytes."""

    exchanged: int = 0
    """Bytes that the ranks exchanged, both directions together; where a library moves them by an algorithm
    of its own, the least that it must have moved."""
    exchanged_most: int = 0
    """The most that it may have moved; equal to ``exchanged`` where that is known exactly."""
    shares: Mapping[Wire, float] = field(default_factory=dict)
    """Parts of 1, the largest first; they sum to 1. Empty: nothing was judged, ``unjudged`` says why."""
    devices: Mapping[Wire, tuple[str, ...]] = field(default_factory=dict)
    """Ports and interfaces that carried them: ``mlx5_0 port 1``, ``eth0``."""
    unjudged: str = ""
    """``one rank``, ``less than 1 MiB was exchanged``; empty where ``shares`` is not."""
    evidence: tuple[str, ...] = ()
    """What this rests on, the strongest first, sentences without a full stop."""
    contradictions: tuple[str, ...] = ()
    """Evidence that says otherwise."""
    by_log_only: bool = False
    """No counter shows it: a library's log or settings say so."""
    by_connections: bool = False
    """The ranks reported nothing: ``exchanged`` is what their connections and the host's ports moved."""

    @property
    def main(self) -> Wire | None:
        """The wire that carried most; ``None``: nothing was judged."""
        return max(self.shares, key=lambda wire: self.shares[wire]) if self.shares else None


@dataclass(frozen=True, kw_only=True)
class GpuDirectUse:
    """Whether the NICs read and wrote the memory of GPUs."""

    used: bool | None = None
    """``None``: unknown, or there is nothing to say."""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HostProof:
    """One host."""

    host: str
    ranks: tuple[int, ...] = ()
    within: WireShares = WireShares()
    """Between the ranks of this host."""
    between: WireShares = WireShares()
    """With ranks of other hosts."""
    gpudirect: GpuDirectUse = GpuDirectUse()
    carried: tuple[Carried, ...] = ()
    """What its ports and interfaces moved while the job ran, the loopback interface last."""
    shared_with_others: bool = True
    """Whether processes outside of the job may have moved these counters."""
    warnings: tuple[str, ...] = ()
    """What is wrong, sentences without a full stop: TCP where shared memory or RDMA could have been."""


@dataclass(frozen=True, kw_only=True)
class PairProof:
    """One host's exchange with one other."""

    host: str
    peer: str
    exchanged: Exchanged
    wire: Wire = Wire.UNKNOWN
    """The one that carried all that ``host`` exchanged with others; ``unknown`` where there were several."""


@dataclass(frozen=True, kw_only=True)
class TransportProof:
    """The whole job."""

    hosts: tuple[HostProof, ...] = ()
    """In the job's order."""
    pairs: tuple[PairProof, ...] = ()
    """Where the engine knows whom it spoke to."""
    between: Mapping[Wire, float] = field(default_factory=dict)
    """Shares of all bytes between hosts."""
    within: Mapping[Wire, float] = field(default_factory=dict)
    """Shares of all bytes within hosts."""


def lines(proof: TransportProof) -> tuple[str, ...]:
    """Return what is worth saying at a job's end.

    Of a job on several hosts what carried the bytes between them; of any job what is wrong. On one host, what
    carried those of ranks that do not use our engine. Of a healthy one with our engine, and of what was not
    judged, nothing.
    """
    return tuple(line for host in proof.hosts for line in _host_lines(host))


def _host_lines(host: HostProof) -> Iterator[str]:
    if host.within.by_connections and host.within.shares and not host.between.shares:
        yield f"{host.host}, between its ranks: {_text(host.within)}"
    if host.between.shares:
        gpudirect = {True: "; GPUDirect RDMA used", False: "; GPUDirect RDMA not used", None: ""}
        yield f"{host.host} to other hosts: {_text(host.between)}{gpudirect[host.gpudirect.used]}"
    for warning in host.warnings:
        yield f"{host.host}: {warning}"


def _text(wires: WireShares) -> str:
    parts: list[str] = []
    for wire, part in wires.shares.items():
        names = wires.devices.get(wire, ())
        on = f" on {names_words(names)}" if names else ""
        verb = "" if parts else " carried"
        parts.append(f"{WIRE_WORDS[wire]}{on}{verb} {part_words(part)}")
    least = "at least " if wires.exchanged_most > wires.exchanged else ""
    carried = ", ".join(parts)
    if wires.exchanged:
        carried += f" of {least}{byte_size(wires.exchanged)}"
    if wires.by_log_only:
        carried += " (by logs, not by counters)"
    return "; ".join([carried, *wires.evidence])
