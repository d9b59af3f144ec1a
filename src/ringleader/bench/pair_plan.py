"""What the ranks of a point-to-point measurement do, and how its time is shared out. Pure.

``pair_rounds`` has who measures with whom, ``program_commands`` what perftest and its like are started with.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

BUFFER_BYTES = 64 * 1024 * 1024
"""Of messages under way in one direction: each is received into its own memory, as MPI wants it."""
SLACK_SECONDS = 5.0
"""What a pair may take besides its measurements before a partner is given up: a stall of a busy machine is
shorter, and each pair that cannot talk costs this once."""
LATE = 2.0
"""A pair may take this many times its own time: sizes whose time was not foreseen."""
LARGE = 64 * 1024
"""Bytes from which on a message's time is that of its bytes, more or less."""
ROUND_TRIPS, ROUND_TRIPS_AT_ONCE = 1000, 100
GROWTH = 8
"""A batch is this many times as long as the one before, at most."""
BATCHES = 10
MOST_WINDOWS = 2000
"""Of one batch."""
LEAST_STEP = 0.002
"""Seconds; a step that has less time left than that is made as short as it can be."""


@dataclass(frozen=True, kw_only=True)
class ProgramRun:
    """One start of a server and a client of perftest or ucx_perftest."""

    test: str
    """``ib_write_bw``, or a test of ucx_perftest: ``tag_bw``."""
    sizes: tuple[int, ...]
    """One, or all of a sweep."""
    backwards: bool = False
    """The second of the pair is the client."""
    both_ways: bool = False
    rail: int = 0
    """Which of a host's usable RDMA ports, in the kernel's order, where no port was asked for."""


@dataclass(frozen=True, kw_only=True)
class PairPlan:
    """Of one job. Ranks count as in the job."""

    rounds: tuple[tuple[tuple[int, ...], ...], ...]
    """Pairs of ranks, round by round; a host is in one pair of a round at most."""
    sizes: tuple[int, ...]
    """Bytes of a message, ascending."""
    window: int = 64
    """Messages under way at once, for rates; of large ones fewer (``window_of``)."""
    both_ways: bool = False
    "Also measure both directions at the same time."
    pair_seconds: float = 5.0
    """What one pair may take."""
    one_at_a_time: bool = False
    """Ranks share hosts: no round begins before the one before it has ended."""
    memory: str = "host"
    """``host`` or ``cuda``."""
    patience: float = 1.0
    """How many times longer than usual ranks and servers may take to start: see ``Job.patience``."""
    runs: tuple[ProgramRun, ...] = ()
    """Of perftest or ucx_perftest between each pair, in place of our own messages."""
    path: str = ""
    """Of their executable; a bare name is looked for on each host. Empty: a run's test is its name."""
    port: str = ""
    """RDMA port that was asked for: ``mlx5_0:1``; empty: each run's rail."""
    ports: tuple[tuple[str, ...], ...] = ()
    """(rank, its RDMA port of each rail) where those were chosen before; else a rank counts its own."""
    addresses: tuple[tuple[str, ...], ...] = ()
    """(rank, address of its host) of each rank that takes part in runs."""
    run_seconds: float = 10.0
    """What one run may take at most."""

    @property
    def round_seconds(self) -> float:
        """What a round may take at most."""
        if self.runs:
            return len(self.runs) * self.run_seconds
        return LATE * self.pair_seconds + SLACK_SECONDS

    @property
    def most_seconds(self) -> float:
        """What everything may take at most, starts aside."""
        return len(self.rounds) * self.round_seconds + 30.0

    @property
    def steps(self) -> int:
        """Measurements of one size: latency, the rate of each direction, that of both together."""
        return 4 if self.both_ways else 3


def window_of(window: int, size: int) -> int:
    """Return how many messages of a size are under way at once: no more than ``BUFFER_BYTES`` together."""
    return max(1, min(window, BUFFER_BYTES // size))


def repetitions(seconds: float, once: float, most: int) -> int:
    """Return how often something that takes ``once`` is repeated within ``seconds``; at least 1."""
    return max(1, min(most, int(seconds / max(once, 1e-9))))


def fitting_window(window: int, size: int, message_seconds: float, seconds: float) -> int:
    """Return a window of large messages that takes a third of a step at most; at least 1 message.

    ``message_seconds``: what one message takes alone. Of small ones many take hardly longer than one.
    """
    if size < LARGE:
        return window
    return max(1, min(window, int(seconds / 3 / max(message_seconds, 1e-9))))


def share_of(size: int, sizes: tuple[int, ...]) -> float:
    """Return the part of the time that a size gets; ``sizes``: it and those after it."""
    return _weight(size) / sum(map(_weight, sizes))


def _weight(size: int) -> float:
    return 4.0 if size >= LARGE else 1.0


def least_seconds(size: int, known_size: int, round_trip: float, steps: int) -> float:
    """Return what a size takes at least, from the time of a round trip of another size.

    A smaller message is taken to be as slow, a larger one to be slower in proportion: of networks and memory
    this is the upper limit. Latency takes a round trip, each other step half of one, and each may take
    half as long again.
    """
    return 1.5 * (1 + (steps - 1) / 2) * round_trip * max(1.0, size / max(1, known_size))


def half_of(round_trips: list[float]) -> dict[str, float | None]:
    """Return latency, its lowest and its 99th percentile (of 100 round trips at least), in seconds."""
    ordered = sorted(round_trips)
    # The nearest rank: 99% of the round trips take no longer.
    high = ordered[-(-99 * len(ordered) // 100) - 1] if len(ordered) >= 100 else None
    return {
        "latency": statistics.median(ordered) / 2,
        "latency_low": ordered[0] / 2,
        "latency_p99": None if high is None else high / 2,
    }
