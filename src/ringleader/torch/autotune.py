"""``--autotune``: bucket sizes on trial during the first steps of a training."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.tuning import Trials
from ringleader.torch.direct import sum_over_ranks

CANDIDATES = (8 << 20, 2 << 20, 25 << 20, None)
"""Bucket sizes in bytes: what is used without trials between hosts, smaller, larger, and one bucket."""


class Autotune:
    """Trials for the gradients of one optimizer."""

    def __init__(self, engine: Engine, trials: Trials) -> None:
        """Try on the ranks of ``engine``."""
        self._engine = engine
        self._trials = trials
        self._before: float | None = None

    @property
    def cap_bytes(self) -> int | None:
        """Return the bucket size to use now, None for no limit."""
        return self._trials.current

    def step(self, name: str) -> bool:
        """Note that a step is over; return whether buckets are to be made anew with another `cap_bytes`.

        Collective: called by every rank once in each step, after its exchange and outside any. ``name`` tells
        this optimizer from others, equally on all ranks.
        """
        trials, now = self._trials, time.perf_counter()
        before, self._before = self._before, now
        if before is None or trials.over:
            return False
        mine = trials.note(now - before)
        if mine is None:
            return False
        used = trials.current
        agreed = torch.tensor([mine], dtype=torch.float64)
        sum_over_ranks(self._engine, agreed, name)
        last = trials.agree(float(agreed) / self._engine.ranks.size)
        if last and self._engine.ranks.rank == 0:
            choice = getattr(self._engine.transport, "choice", None)
            arrays = f"; arrays: {choice.describe()}" if choice is not None else ""
            text = f"ringleader: autotune chose {trials.describe()}{arrays}"
            print(text, file=sys.stderr, flush=True)  # noqa: T201
        self._before = None  # making buckets is not a part of the next step
        return trials.current != used


def autotune(engine: Engine, environ: Mapping[str, str] = os.environ) -> Autotune | None:
    """Return the trials for an optimizer, None where nobody asked for them.

    ``RINGLEADER_AUTOTUNE`` or ``HOROVOD_AUTOTUNE`` must be set equally on all ranks, as the launcher does.
    """
    asked = environ.get("RINGLEADER_AUTOTUNE") or environ.get("HOROVOD_AUTOTUNE") or ""
    if asked.lower() not in ("1", "true", "yes", "on") or engine.ranks.size == 1:
        return None
    return Autotune(engine, Trials(candidates=CANDIDATES))
