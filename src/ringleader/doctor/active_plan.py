"""What the ranks of an active test are told to measure, and how its time is shared out. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.bench.pair_rounds import Round

SLACK_SECONDS = 5.0
"""What a round may take besides its measurements before a partner is given up: a stall of a busy machine is
shorter, and each pair that cannot talk costs this once."""
LEAST_SECONDS, MOST_SECONDS = 0.05, 1.0
"""Of one direction of a pair: below, noise; above, no better."""
WARM_UP_PART = 0.25
"""Of a direction's time, on top of it."""
LATENCY_PART = 0.3
"""Of a direction's time; it ends sooner where enough round trips were made."""


@dataclass(frozen=True, kw_only=True)
class ProgramRun:
    """A program of others, between two ranks: the first listens, the second connects."""

    program: str
    server: int
    client: int
    address: str
    """Of the server's host, as the launcher reaches it."""


@dataclass(frozen=True, kw_only=True)
class ActivePlan:
    """Of one job. Ranks count as in the job."""

    rounds: tuple[tuple[tuple[int, ...], ...], ...] = ()
    """Pairs of ranks, round by round."""
    seconds: float = 0.3
    """Of one direction of one pair."""
    speed_seconds: float = 0.0
    """Of each measurement of a rank's own speed; 0: none."""
    ranks_per_host: int = 1
    """So many share a host's memory."""
    runs: tuple[ProgramRun, ...] = ()
    """Programs of others, in this order."""
    program_seconds: float = 5.0

    @property
    def round_seconds(self) -> float:
        """What a round may take at most."""
        return 2 * (1 + WARM_UP_PART) * self.seconds + LATENCY_PART * self.seconds + SLACK_SECONDS

    @property
    def run_seconds(self) -> float:
        """What one run of a program of others may take at most."""
        return self.program_seconds + 2 * SLACK_SECONDS

    @property
    def most_seconds(self) -> float:
        """What everything may take at most, starts aside."""
        own = 6 * self.speed_seconds + 30.0
        return own + len(self.rounds) * self.round_seconds + len(self.runs) * self.run_seconds


def direction_seconds(rounds: tuple[Round, ...], seconds: float) -> float:
    """Return how long one direction is measured, so that all rounds take about ``seconds``."""
    each = seconds / max(1, len(rounds)) / (2 * (1 + WARM_UP_PART) + LATENCY_PART)
    return min(MOST_SECONDS, max(LEAST_SECONDS, each))
