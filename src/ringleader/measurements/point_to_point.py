"""What pairs of ranks measured between them. Values only; sizes in bytes, times in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ringleader.dataclass_json import bounded
from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.metrics import BYTES, RATE, TIME, ComparableRate, Spread
from ringleader.scaling import Context, StoredRun


@dataclass(frozen=True, kw_only=True)
class Place:
    """A rank that took part."""

    rank: int
    host: str
    """As the user named it; ``localhost`` where no host was given."""
    device: str = ""
    """Its GPU where the messages were in GPU memory; empty: host memory."""

    @property
    def name(self) -> str:
        """The host, and the rank where several ranks of a host may take part."""
        return f"{self.host}#{self.rank}"


def names_of(places: Sequence[Place]) -> list[str]:
    """Return the hosts, with the rank where ranks share a host."""
    hosts = [place.host for place in places]
    return hosts if len(set(hosts)) == len(hosts) else [place.name for place in places]


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Messages of one size from one rank to another. What was not measured is ``None``.

    ``latency…`` and ``both_ways_rate`` are of the pair, and the same in both of its directions.
    """

    source: int
    """Index in ``PointToPointRun.places``."""
    target: int
    size: int = bounded(**BYTES)
    """Bytes of a message."""
    latency: float | None = bounded(None, **TIME)
    """Half a round trip: the median of all."""
    latency_low: float | None = bounded(None, **TIME)
    latency_p99: float | None = bounded(None, **TIME)
    rate: float | None = bounded(None, **RATE)
    """Bytes per second in this direction alone, ``window`` messages under way: the median of the batches."""
    rate_low: float | None = bounded(None, **RATE)
    rate_high: float | None = bounded(None, **RATE)
    both_ways_rate: float | None = bounded(None, **RATE)
    """Bytes per second of both directions together, both at once."""
    window: int | None = None
    """Messages under way at once for the rates; ``None``: not known."""
    device: str = ""
    """RDMA port of the source where a program was started for it: ``mlx5_0:1``; empty: not known."""


@dataclass(frozen=True, kw_only=True)
class Silence:
    """A pair whose messages did not arrive in time."""

    source: int
    target: int
    during: str
    """What was being measured."""
    seconds: float
    """How long it was waited for."""


@dataclass(frozen=True, kw_only=True)
class PointToPointRun(StoredRun):
    """One measurement of pairs, complete or not."""

    kind = "point-to-point"
    settings = ("program", "memory", "window", "line_rate")

    name: str
    context: Context
    places: tuple[Place, ...]
    transfers: tuple[Transfer, ...]
    program: str = "mpi"
    """What sent the messages: ``mpi``, ``nccl``, or a program of others, as ``ib_write_bw``."""
    memory: str = "host"
    """Where messages lay: ``host`` or ``cuda``."""
    window: int = 64
    """Messages under way at once for rates, as asked for; of large ones fewer."""
    silences: tuple[Silence, ...] = ()
    line_rate: float | None = bounded(None, **RATE)
    """Bytes per second that the slowest link between two hosts is said to carry; ``None``: not known."""
    notes: tuple[str, ...] = ()
    """What was not measured, and why."""
    transport: TransportProof | None = None
    """Which wires carried the bytes; ``None``: no rank reported any."""
    failure: str = ""
    schema: int = 1

    @property
    def measured(self) -> bool:
        """Whether messages of a size were measured."""
        return bool(self.transfers)

    def pair_name(self, transfer: Transfer) -> str:
        """``h1 → h2``."""
        names = names_of(self.places)
        return f"{names[transfer.source]} → {names[transfer.target]}"

    def rates(self) -> Iterator[ComparableRate]:
        """Yield the rate and the latency of each pair and size."""
        for one in self.transfers:
            name = f"{self.pair_name(one)}, {byte_size(one.size)}"
            if one.rate is not None:
                spread = _spread(one.rate, one.rate_low, one.rate_high)
                yield ComparableRate(name=f"{name}, rate", unit="bytes/s", spread=spread)
            if one.latency is not None:
                spread = _spread(one.latency, one.latency_low, one.latency_p99)
                yield ComparableRate(name=f"{name}, latency", unit="s", spread=spread)

    def impossible(self) -> Iterator[tuple[str, str]]:
        """See `StoredRun`."""
        count = len(self.places)
        every: dict[str, Sequence[Transfer | Silence]] = {
            "transfers": self.transfers,
            "silences": self.silences,
        }
        for name, pairs in every.items():
            for at, pair in enumerate(pairs):
                for end, place in (("source", pair.source), ("target", pair.target)):
                    if not 0 <= place < count:
                        yield f"{name}[{at}].{end}", f"{place} is not the number of one of {count} places"


def _spread(middle: float, low: float | None, high: float | None) -> Spread:
    if low is None or high is None:
        return Spread(median=middle, low=middle, high=middle, count=1)
    return Spread(median=middle, low=low, high=high, count=2)
