"""What active tests measure, as values. Rates of the network are bits per second, times seconds."""

from __future__ import annotations

from dataclasses import dataclass

MESSAGES = "MPI messages"
"""The program of ``PairRate`` and ``PairLatency`` that needs no program: messages of our own over MPI."""


@dataclass(frozen=True, kw_only=True)
class PairRate:
    """What went from one host to another while nothing else used the two of them."""

    source: str
    """Host that sent, as the user named it."""
    target: str
    rate: float
    """Bits per second; of several batches the median."""
    lowest: float
    """Of the slowest batch."""
    highest: float
    message_bytes: int
    program: str = MESSAGES
    """``ib_write_bw``, ``ucx_perftest`` …"""
    device: str = ""
    """RDMA device of the sender; empty: the program did not say."""
    pass_number: int = 1
    """2: measured again because the first pass was slow."""


@dataclass(frozen=True, kw_only=True)
class PairLatency:
    """Half a round trip between two hosts."""

    first: str
    second: str
    seconds: float
    """The median."""
    round_trips: int
    program: str = MESSAGES
    device: str = ""


@dataclass(frozen=True, kw_only=True)
class Silence:
    """A host waited for its partner until the deadline."""

    host: str
    """Who waited."""
    partner: str
    """Who did not answer."""
    during: str
    """``meeting``, ``bandwidth``, ``latency``."""
    seconds: float
    """How long it waited."""


@dataclass(frozen=True, kw_only=True)
class GpuCopy:
    """Copies between a GPU and pinned memory of its host. Bytes per second."""

    device: int
    name: str
    to_gpu: float
    from_gpu: float


@dataclass(frozen=True, kw_only=True)
class RankSpeed:
    """How fast one rank computes, all ranks at once."""

    rank: int
    host: str
    kernel_seconds: float
    """Median time of one run of the kernel."""
    kernel_runs: int
    copy_rate: float | None = None
    """Bytes read plus bytes written per second, of a copy larger than the caches; ``None``: not measured."""
    gpus: tuple[GpuCopy, ...] = ()
    gpu_note: str = ""
    """Why no GPU was measured."""


@dataclass(frozen=True, kw_only=True)
class ProgramNote:
    """Why a program of others measured nothing between two hosts, or on all."""

    program: str
    reason: str
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ActiveResults:
    """Everything that the active tests measured; ``facts.document`` makes JSON of it."""

    hosts: tuple[str, ...]
    """As the user named them, in their order."""
    pair_rates: tuple[PairRate, ...] = ()
    latencies: tuple[PairLatency, ...] = ()
    silences: tuple[Silence, ...] = ()
    ranks: tuple[RankSpeed, ...] = ()
    notes: tuple[ProgramNote, ...] = ()
    passes: int = 1
    """2: suspects were measured again."""
    mpi: str = ""
    """``Open MPI 5.0.10``."""
    one_machine: bool = False
    """All hosts share one kernel (a lab, or ranks of one machine): they compete for its cores."""
    seconds: float = 0.0
    """What all measurements took."""
    failure: str = ""
    """How the job ended, where it did not end well; what was measured until then is in the other fields."""

    def best_rates(self, program: str = MESSAGES) -> dict[tuple[str, str], float]:
        """Return (source, target) → the highest rate of all passes: a slow link is slow in each of them."""
        best: dict[tuple[str, str], float] = {}
        for one in self.pair_rates:
            if one.program == program:
                pair = one.source, one.target
                best[pair] = max(best.get(pair, 0.0), one.rate)
        return best
