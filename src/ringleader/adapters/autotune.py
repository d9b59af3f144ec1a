"""``--autotune``: bucket sizes on trial during the first steps of a training.

Every candidate gets some steps, of which the first is not counted: it pays for the change. What one rank
measured is not what another did, so times are agreed on between ranks before the next candidate begins, and
all ranks choose from the same numbers.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ringleader.adapters.object_exchange import sum_numbers
from ringleader.engine.engine import Engine

CANDIDATES = (8 << 20, 2 << 20, 25 << 20, None)
"""Bucket sizes in bytes: what is used without trials between hosts, smaller, larger, and one bucket."""
STEPS = 5
"""Counted steps of each candidate."""


@dataclass(kw_only=True)
class Trials:
    """What was tried so far. Pure."""

    candidates: Sequence[int | None]
    """Bucket sizes in bytes, None for no limit; tried in this order, on all ranks."""
    steps: int = STEPS
    """Counted steps of each."""
    seconds: list[float] = field(default_factory=list)
    """One agreed time for each candidate that has been tried."""
    _running: list[float] = field(default_factory=list)
    _skip: int = 1

    @property
    def over(self) -> bool:
        """Return whether all candidates have been tried."""
        return len(self.seconds) == len(self.candidates)

    @property
    def current(self) -> int | None:
        """Return what to use now: the candidate on trial, afterwards the best."""
        if not self.over:
            return self.candidates[len(self.seconds)]
        return self.candidates[self.seconds.index(min(self.seconds))]

    def note(self, seconds: float) -> float | None:
        """Note this rank's time of a step; return the time to agree on when the candidate has been tried.

        All ranks note equally many steps, so that happens at the same one on all of them.
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
        """Take the agreed time of the candidate that has been tried; return whether it was the last one."""
        self.seconds.append(seconds)
        return self.over

    def describe(self) -> str:
        """Say which bucket size was chosen and why."""
        tried = zip(self.candidates, self.seconds, strict=False)
        times = ", ".join(f"{_size(one)} {seconds * 1e3:.2f} ms" for one, seconds in tried)
        return f"buckets: {_size(self.current)} (a step took with {times})"


def _size(candidate: int | None) -> str:
    return "no limit" if candidate is None else f"{candidate / (1 << 20):g} MiB"


class Autotune:
    """Trials for the gradients of one optimizer."""

    def __init__(
        self,
        engine: Engine,
        sizes: Sequence[int | None],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Try bucket sizes on the ranks of ``engine``."""
        self.engine = engine
        """The engine of the ranks that try."""
        self._trials = Trials(candidates=sizes)
        self._clock = clock
        self._before: float | None = None
        self.over = False
        """Whether nothing is tried any more."""

    @property
    def cap_bytes(self) -> int | None:
        """Return the bucket size to use now, None for no limit."""
        return self._trials.current

    def step(self, name: str) -> bool:
        """Note that a step is over; return whether buckets are to be cut anew, by `cap_bytes`.

        Collective: called by every rank once in each step, after its exchange and outside any. ``name``
        distinguishes this optimizer from others, equally on all ranks.
        """
        if self.over:
            return False
        now = self._clock()
        before, self._before = self._before, now
        mine = None if before is None else self._trials.note(now - before)
        if mine is None:
            return False
        self._before = None  # what follows is not a part of the next step
        total, present = sum_numbers(self.engine, array("d", [mine, 1.0]), name)
        if present != self.engine.ranks.size:  # one of them has joined
            self.end()
            return False
        used = self.cap_bytes
        if self._trials.agree(total / present):
            self.end()
            if self.engine.ranks.rank == 0:
                text = f"ringleader: autotune chose {self._trials.describe()}"
                print(text, file=sys.stderr, flush=True)  # noqa: T201
        return self.cap_bytes != used

    def end(self) -> None:
        """Try nothing more and stay with what is in use: a rank that has joined can't follow."""
        self.over = True


def autotune(
    engine: Engine, cap_bytes: int | None, environ: Mapping[str, str] = os.environ
) -> Autotune | None:
    """Return the trials for an optimizer, None where autotuning is off or there is nothing to try.

    ``cap_bytes`` is the bucket size that the script wants, None where that is to be tried.
    ``RINGLEADER_AUTOTUNE`` or ``HOROVOD_AUTOTUNE`` must be set equally on all ranks, as the launcher does.
    """
    wanted = environ.get("RINGLEADER_AUTOTUNE") or environ.get("HOROVOD_AUTOTUNE") or ""
    if wanted.lower() not in ("1", "true", "yes", "on") or engine.ranks.size == 1 or cap_bytes is not None:
        return None
    return Autotune(engine, CANDIDATES)
