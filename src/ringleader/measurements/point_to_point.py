"""What pairs of ranks measured between them. Values only; sizes in bytes, times in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.scaling import Context

KIND = "point-to-point"
SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Place:
    """A rank that took part."""

    rank: int
    host: str
    """As the user named it; ``localhost`` where no host was given."""
    device: str = ""
    """Its GPU where the messages lay in GPU memory; empty: host memory."""

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
    size: int
    """Bytes of a message."""
    latency: float | None = None
    """Half a round trip: the median of all."""
    latency_low: float | None = None
    latency_p99: float | None = None
    rate: float | None = None
    """Bytes per second in this direction alone, ``window`` messages under way: the median of the batches."""
    rate_low: float | None = None
    rate_high: float | None = None
    both_ways_rate: float | None = None
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
class PointToPointRun:
    """One measurement of pairs, complete or not."""

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
    line_rate: float | None = None
    """Bytes per second that the slowest link between two hosts is said to carry; ``None``: not known."""
    notes: tuple[str, ...] = ()
    """What was not measured, and why."""
    transport: TransportProof | None = None
    """Which wires carried the bytes; ``None``: no rank told of any."""
    failure: str = ""
    schema: int = SCHEMA
