"""``--autotune``: bucket sizes, and then the sizes at which arrays go another way, on trial during the first
steps of a training."""

from __future__ import annotations

import os
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence

from ringleader.collectives.autotune_trials import Trials, describe_buckets, describe_table, refined
from ringleader.collectives.engine import Engine
from ringleader.collectives.transports.algorithm_table import AlgorithmTable
from ringleader.collectives.transports.transport import Tunable
from ringleader.common.object_exchange import sum_numbers

CANDIDATES = (8 << 20, 2 << 20, 25 << 20, None)
"""Bucket sizes in bytes: what is used without trials between hosts, smaller, larger, and one bucket."""
MOST_TABLES = 8
"""At most so many tables are tried."""


class Autotune:
    """Trials for the gradients of one optimizer."""

    def __init__(
        self,
        engine: Engine,
        sizes: Sequence[int | None],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Try bucket sizes on the ranks of ``engine``, and then tables next to the one that is in use."""
        self.engine = engine
        """The engine of the ranks that try."""
        self._sizes: Trials[int | None] = Trials(candidates=sizes)
        self._tables: Trials[AlgorithmTable] | None = None
        self._clock = clock
        self._before: float | None = None
        self.over = False
        """Whether nothing is tried any more."""

    @property
    def cap_bytes(self) -> int | None:
        """Return the bucket size to use now, None for no limit."""
        return self._sizes.current

    @property
    def table(self) -> AlgorithmTable | None:
        """Return the table that arrays go by now, None where there is none."""
        transport = self.engine.transport
        return transport.table if isinstance(transport, Tunable) else None

    def step(self, name: str) -> bool:
        """Note that a step is over; return whether buckets are to be cut anew, by `cap_bytes` and `table`.

        Collective: called by every rank once in each step, after its exchange and outside any. ``name`` tells
        this optimizer from others, equally on all ranks.
        """
        if self.over:
            return False
        now = self._clock()
        before, self._before = self._before, now
        if before is None:
            return False
        mine = (self._sizes if self._tables is None else self._tables).note(now - before)
        if mine is None:
            return False
        self._before = None  # what follows is not a part of the next step
        agreed = self._mean(mine, name)
        if agreed is None:
            self.end()
            return False
        if self._tables is None:
            return self._next_size(agreed, name)
        return self._next_table(self._tables, agreed)

    def end(self) -> None:
        """Try nothing more and stay with what is in use: a rank that has joined can't follow."""
        self.over = True

    def _next_size(self, seconds: float, name: str) -> bool:
        used = self.cap_bytes
        if self._sizes.agree(seconds):
            self._tables = self._neighbours(name)
            if self._tables is None or len(self._tables.candidates) == 1:
                self._tell_choice("" if self.table is None else self.table.describe())
        return self.cap_bytes != used

    def _neighbours(self, name: str) -> Trials[AlgorithmTable] | None:
        """Return the tables to try, as rank 0 lists them; the one in use first. None where there is none."""
        table, transport = self.table, self.engine.transport
        if table is None or not isinstance(transport, Tunable):
            return None
        width = 1 + len(table.as_list())
        numbers = array("q")
        if self.engine.ranks.rank == 0:
            for one in [table, *table.neighbours(transport.used)][:MOST_TABLES]:
                numbers.extend([1, *one.as_list()])
        numbers.extend([0] * (MOST_TABLES * width - len(numbers)))
        told = sum_numbers(self.engine, numbers, f"{name}.tables")
        rows = [told[start : start + width] for start in range(0, len(told), width)]
        return Trials(candidates=[table.from_list(row[1:]) for row in rows if row[0]])

    def _next_table(self, tables: Trials[AlgorithmTable], seconds: float) -> bool:
        last = tables.agree(seconds)
        following = refined(tables) if last else tables.current
        self.engine.adopt(following.as_list())
        if last:
            self._tell_choice(describe_table(tables))
        return True

    def _mean(self, seconds: float, name: str) -> float | None:
        """Return the mean over the ranks, None where one of them has joined."""
        total, present = sum_numbers(self.engine, array("d", [seconds, 1.0]), name)
        size = self.engine.ranks.size
        return total / size if present == size else None

    def _tell_choice(self, arrays: str) -> None:
        self.end()
        if self.engine.ranks.rank == 0:
            more = f"; arrays: {arrays}" if arrays else ""
            text = f"ringleader: autotune chose {describe_buckets(self._sizes)}{more}"
            print(text, file=sys.stderr, flush=True)  # noqa: T201


def autotune(
    engine: Engine, cap_bytes: int | None, environ: Mapping[str, str] = os.environ
) -> Autotune | None:
    """Return the trials for an optimizer, None where autotuning is off.

    ``cap_bytes`` is the bucket size that the script wants, None where that is to be tried too.
    ``RINGLEADER_AUTOTUNE`` or ``HOROVOD_AUTOTUNE`` must be set equally on all ranks, as the launcher does.
    """
    wanted = environ.get("RINGLEADER_AUTOTUNE") or environ.get("HOROVOD_AUTOTUNE") or ""
    if wanted.lower() not in ("1", "true", "yes", "on") or engine.ranks.size == 1:
        return None
    return Autotune(engine, CANDIDATES if cap_bytes is None else (cap_bytes,))
