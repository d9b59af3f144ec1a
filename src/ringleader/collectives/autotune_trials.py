"""What makes a training step the shortest: tried during the first steps. Pure.

Every candidate gets some steps, of which the first is not counted: it pays for the change. What one rank
measured is not what another did, so times are agreed on between ranks before the next candidate's turn, and
all ranks choose from the same numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ringleader.collectives.transports.algorithm_table import AlgorithmTable
from ringleader.collectives.transports.algorithm_table import size_of as size_in_words

STEPS = 5
"""Counted steps of each candidate."""
LEAST_GAIN = 0.02
"""Part of a step that another table must save. Below it the numbers of the beginning stay."""
Candidate = TypeVar("Candidate")


@dataclass(kw_only=True)
class Trials(Generic[Candidate]):
    """What was tried so far."""

    candidates: Sequence[Candidate]
    """Tried in this order, on all ranks; such as bucket sizes in bytes, None for no limit."""
    steps: int = STEPS
    """Counted steps of each."""
    seconds: list[float] = field(default_factory=list)
    """One agreed time for each candidate that had its turn."""
    _running: list[float] = field(default_factory=list)
    _skip: int = 1

    @property
    def over(self) -> bool:
        """Return whether all candidates had their turn."""
        return len(self.seconds) == len(self.candidates)

    @property
    def current(self) -> Candidate:
        """Return what to use now: the candidate on trial, afterwards the best."""
        if not self.over:
            return self.candidates[len(self.seconds)]
        return self.candidates[self.seconds.index(min(self.seconds))]

    def note(self, seconds: float) -> float | None:
        """Note this rank's time of a step; return the time to agree on when the candidate's turn is over.

        All ranks note equally many steps, so for all of them it is over at the same one.
        """
        if self.over:
            return None
        if self._skip:
            self._skip -= 1
            return None
        self._running.append(seconds)
        if len(self._running) < self.steps:
            return None
        middle = statistics.median(self._running)
        self._running, self._skip = [], 1
        return middle

    def agree(self, seconds: float) -> bool:
        """Take the agreed time of the candidate whose turn is over; return whether it was the last one."""
        self.seconds.append(seconds)
        return self.over

    def describe(self, words: Callable[[Candidate], str]) -> str:
        """Say what was tried; ``words`` describes a candidate."""
        tried = zip(self.candidates, self.seconds, strict=False)
        return ", ".join(f"{words(candidate)} {seconds * 1e3:.2f} ms" for candidate, seconds in tried)


def describe_buckets(trials: Trials[int | None]) -> str:
    """Say which bucket size was chosen and why."""
    return f"buckets: {bucket_size(trials.current)} (a step took with {trials.describe(bucket_size)})"


def bucket_size(candidate: int | None) -> str:
    """Say a bucket size in words."""
    return "no limit" if candidate is None else size_in_words(candidate)


def refined(trials: Trials[AlgorithmTable]) -> AlgorithmTable:
    """Return the table that the trials of `AlgorithmTable.neighbours` speak for.

    The first candidate is where they began. Its numbers govern different sizes. So each of them takes the
    value that made the step the shortest, if that saved `LEAST_GAIN` at least.
    """
    first, *moved = trials.candidates
    numbers = first.as_list()
    best = [trials.seconds[0] * (1 - LEAST_GAIN)] * len(numbers)
    for table, seconds in zip(moved, trials.seconds[1:], strict=True):
        for at, (before, after) in enumerate(zip(first.as_list(), table.as_list(), strict=True)):
            if before != after and seconds < best[at]:
                numbers[at], best[at] = after, seconds
    return type(first).from_list(numbers)


def describe_table(trials: Trials[AlgorithmTable]) -> str:
    """Say which table was chosen and why."""
    chosen = refined(trials).describe()
    if len(trials.candidates) == 1:
        return chosen
    first = trials.candidates[0]
    return f"{chosen} (a step took {trials.describe(lambda table: _words(table, first))})"


def _words(table: AlgorithmTable, first: AlgorithmTable) -> str:
    return f"with {table.difference(first)}" if table != first else "as before"
