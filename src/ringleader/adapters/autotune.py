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
from itertools import pairwise

from ringleader.adapters.object_exchange import sum_numbers
from ringleader.engine.group_engine import Engine

CANDIDATES = (8 << 20, 2 << 20, 25 << 20, None)
"""Bucket sizes in bytes: what is used without trials between hosts, smaller, larger, and one bucket."""
STEPS = 5
"""Counted steps of each candidate."""


class Autotune:
    """Trials for the gradients of one optimizer."""

    def __init__(
        self,
        engine: Engine,
        sizes: Sequence[int | None],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Try bucket sizes, None for no limit, in this order on the ranks of ``engine``."""
        self.engine = engine
        """The engine of the ranks that try."""
        self._sizes = sizes
        self._clock = clock
        self._times: list[float] = []
        """When steps of the candidate on trial ended."""
        self._seconds: list[float] = []
        """One agreed time for each candidate that has been tried."""
        self.over = False
        """Whether nothing is tried any more."""

    @property
    def cap_bytes(self) -> int | None:
        """Return the bucket size to use now, None for no limit: that on trial, afterwards the best."""
        tried = len(self._seconds)
        return self._sizes[tried if tried < len(self._sizes) else self._seconds.index(min(self._seconds))]

    def step(self, name: str) -> bool:
        """Note that a step is over; return whether buckets are to be cut anew, by `cap_bytes`.

        Collective: called by every rank once in each step, after its exchange and outside any. ``name``
        distinguishes this optimizer from others, equally on all ranks.
        """
        if self.over:
            return False
        self._times.append(self._clock())
        if len(self._times) < STEPS + 2:
            return False
        mine = statistics.median(later - one for one, later in pairwise(self._times[1:]))
        self._times = []  # what follows is not a part of the next step
        total, present = sum_numbers(self.engine, array("d", [mine, 1.0]), name)
        if present != self.engine.ranks.size:  # one of them has joined
            self.end()
            return False
        used = self.cap_bytes
        self._seconds.append(total / present)
        if len(self._seconds) == len(self._sizes):
            self.end()
            if self.engine.ranks.rank == 0:
                tried = zip(self._sizes, self._seconds, strict=True)
                times = ", ".join(f"{_size(one)} {seconds * 1e3:.2f} ms" for one, seconds in tried)
                text = f"buckets: {_size(self.cap_bytes)} (a step took with {times})"
                print(f"ringleader: autotune chose {text}", file=sys.stderr, flush=True)  # noqa: T201
        return self.cap_bytes != used

    def end(self) -> None:
        """Try nothing more and stay with what is in use: a rank that has joined can't follow."""
        self.over = True


def _size(candidate: int | None) -> str:
    return "no limit" if candidate is None else f"{candidate / (1 << 20):g} MiB"


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
