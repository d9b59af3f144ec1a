"""Telling ranks which others have ended, so that nobody waits for them.

Ends that come together are told together, one message for each rank that still runs, and with many ranks
less often: what is sent in a second does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ringleader.launch.supervision.rank_state import RankState

PAUSE_SECONDS = 0.0005
"""For each rank of the job, from one round of notices to the next."""


class EndNotices:
    """Collects ends until they are told."""

    def __init__(self, ranks: Sequence[RankState], tell: Callable[..., Any]) -> None:
        """``tell(state, do=…)`` sends a message to a rank's agent."""
        self._ranks = ranks
        self._tell = tell
        self.new: list[RankState] = []
        """Those whose end is to be told."""
        self._pause = PAUSE_SECONDS * len(ranks)
        self._not_before = float("-inf")

    def add(self, state: RankState) -> None:
        """A rank has ended."""
        self.new.append(state)

    def tick(self, now: float) -> None:
        """Tell what is new, unless the last round was just now."""
        if not self.new or now < self._not_before:
            return
        self._not_before = now + self._pause
        lines = [{"ended": ranges(ranks), "exit_code": code} for code, ranks in _by_code(self.new).items()]
        self.new.clear()
        for state in self._ranks:
            if state.end is None and state.connection is not None:
                self._tell(state, do="status", lines=lines)


def _by_code(states: Iterable[RankState]) -> dict[int | None, list[int]]:
    found: dict[int | None, list[int]] = {}
    for state in states:
        end = state.end
        known = end is not None and not (end.exit_code is None and end.signal is None)
        found.setdefault(end.code if known and end is not None else None, []).append(state.rank)
    return found


def ranges(ranks: Iterable[int]) -> list[list[int]]:
    """Return ranks as pairs of first and last: ``[[0, 3], [7, 7]]``."""
    found: list[list[int]] = []
    for rank in sorted(ranks):
        if found and found[-1][1] == rank - 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return found
