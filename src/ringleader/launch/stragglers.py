"""Ranks that the others wait for while a job trains: who computes longer than the median rank. Pure.

A rank's own time in a step is what is left of it without exchange and waiting: the engine reports these
("step", once a second), and `agents/script_watch` how long a rank of `torch.distributed` waited ("own").
`hang_verdict` is about ranks that do not move at all.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from ringleader.metrics import number_in
from ringleader.number_format import seconds
from ringleader.value_class import dataclass

WINDOW_SECONDS = 10.0
"""A window ends after this, once every rank has reported in it."""
WINDOWS = 3
"""Windows in a row in which a rank is slow before it is named."""
SLOW = 1.2
"""Own time of a rank in a step, by that of the median rank, from which it is slow."""
PART = 0.05
"""Part of a step that the difference has to be: in less, nobody waits noticeably."""


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """A rank that was slow in several windows in a row."""

    rank: int
    score: float
    """Its own time in a step, by the median rank's."""
    own_seconds: float
    median_seconds: float
    step_seconds: float
    windows: int
    """How many windows in a row, until now."""
    at: float
    """When that was seen first, in seconds from the start."""

    def text(self, named: str) -> str:
        """Return a line. ``named``: ``rank 3 (h2)``."""
        own, median = seconds(self.own_seconds), seconds(self.median_seconds)
        text = f"{named} is slow: of each step of {seconds(self.step_seconds)}, {own} are its own work, "
        return f"{text}{self.score:.1f} times the median rank's ({median}): the others wait"


@dataclass(frozen=True, kw_only=True)
class _Counts:
    """Cumulative numbers of a rank."""

    steps: float
    seconds: float
    own: float


def _counts(report: Mapping[str, Any]) -> _Counts:
    is_engine = report.get("kind") == "step"
    seconds = number_in(report, "step_seconds")
    exchange = number_in(report, "exchange_seconds") if is_engine else 0.0
    own = seconds - exchange - number_in(report, "waiting_seconds")
    return _Counts(steps=number_in(report, "steps"), seconds=seconds, own=max(0.0, own))


class Stragglers:
    """Takes ranks' reports, and names those that are slow."""

    def __init__(self, *, window: float = WINDOW_SECONDS, windows: int = WINDOWS) -> None:
        """Begin without a report. ``windows``: how many in a row a rank is slow before it is named."""
        self._window, self._windows = window, windows
        self._before: dict[int, _Counts] = {}
        self._now: dict[int, _Counts] = {}
        self._fresh: set[int] = set()
        self._since: float | None = None
        self._slow: dict[int, int] = {}
        self.scores: dict[int, float] = {}
        """Of the last window, by rank."""
        self.found: dict[int, Straggler] = {}
        """Ranks that have been named, as they were last."""

    def add(self, rank: int, report: Mapping[str, Any], now: float, ranks: int) -> list[Straggler]:
        """Take a report that came at ``now``; return the ranks that it makes known as slow, each once.

        ``ranks``: how many run: a window counts only if all of them have reported in it.
        """
        try:
            counts = _counts(report)
        except ValueError:
            return []
        before = self._before.setdefault(rank, counts)
        if counts.steps < before.steps:  # another process has taken the rank's place
            self._before[rank] = counts
        self._now[rank] = counts
        self._fresh.add(rank)
        self._since = now if self._since is None else self._since
        if now - self._since < self._window or len(self._fresh) < ranks:
            return []
        return self._close(now)

    def _close(self, now: float) -> list[Straggler]:
        """End a window."""
        own, step = dict[int, float](), dict[int, float]()
        for rank in self._fresh:
            counts = self._now[rank]
            steps = counts.steps - self._before[rank].steps
            if steps > 0:
                own[rank] = (counts.own - self._before[rank].own) / steps
                step[rank] = (counts.seconds - self._before[rank].seconds) / steps
        is_whole = len(own) == len(self._fresh) > 1
        self._before, self._since = dict(self._now), now
        self._fresh.clear()
        if not is_whole:
            return []
        median = statistics.median_low(own.values())
        self.scores = {rank: mine / median if median > 0 else 1.0 for rank, mine in own.items()}
        named = []
        for rank, score in self.scores.items():
            if score < SLOW or own[rank] - median < PART * step[rank]:
                self._slow.pop(rank, None)
                continue
            count = self._slow[rank] = self._slow.get(rank, 0) + 1
            if count < self._windows:
                continue
            first = self.found.get(rank)
            self.found[rank] = Straggler(
                rank=rank,
                score=score,
                own_seconds=own[rank],
                median_seconds=median,
                step_seconds=step[rank],
                windows=count,
                at=now if first is None else first.at,
            )
            named += [self.found[rank]] if count == self._windows and first is None else []
        return named
