"""Which wire carried a job's bytes, host by host: values. ``judged_transport`` makes them of the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringleader.fabric.transport_proof.counter_difference import Carried
from ringleader.fabric.transport_proof.evidence import Exchanged
from ringleader.fabric.wires import Wire


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
