"""Handles: operations that were begun and not waited for.

Describing an operation costs more than a few KiB cost to reduce. So the description of a reduction in place
that is done is kept, without its array, until a like one is submitted under the same name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ringleader.collectives.engine import Engine
from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.collectives.operations import ReduceOp, Work

_Pending = tuple[Engine, Sequence[Work], Callable[[], Any] | None]
"""What a handle stands for: who does the works (one, or the members of a group), and what returns the result
of `synchronize` when all are done without an error; None for one reduction in place. A plain tuple: there may
be hundreds in a step."""

_NEXT_HANDLE = itertools.count()
_PENDING: dict[int, _Pending] = {}

CAPACITY = 4096
"""Descriptions that are kept."""
DONE_WORKS: dict[str | None, Work] = {}
"""Works that are done, by the name that the script gave them. An adapter takes one out to do it again, if it
fits the array."""


def new_handle(engine: Engine, works: Sequence[Work], result: Callable[[], Any] | None) -> int:
    """Return a handle for works that the engine was given; for ``result`` see `synchronize`.

    Without a ``result`` there is one work, a reduction in place whose description may be used again.
    """
    handle = next(_NEXT_HANDLE)
    _PENDING[handle] = (engine, works, result)
    return handle


def finish(engine: Engine, works: Sequence[Work]) -> None:
    """Wait for works until each is done, then raise the first error if there is one."""
    error: HorovodInternalError | None = None
    for work in works:
        try:
            engine.wait(work)
        except HorovodInternalError as failed:
            error = error or failed
    if error is not None:
        raise error


def poll(handle: int) -> bool:
    """Return whether `synchronize` would return at once."""
    pending = _PENDING.get(handle)
    return pending is None or all(work.done for work in pending[1])


def synchronize(handle: int) -> Any:
    """Wait for an operation and return its result; None for a handle that is unknown or was waited for.

    Raises `HorovodInternalError` where the ranks did not agree, or a peer ended.
    """
    pending = _PENDING.pop(handle, None)
    if pending is None:
        return None
    engine, works, result = pending
    if result is None:
        work = works[0]
        engine.wait(work)
        tensor = work.out
        keep_work(work)
        return tensor
    finish(engine, works)
    return result()


def keep_work(work: Work) -> None:
    """Keep the description of a reduction in place that is done and that nobody asks about any more."""
    name = work.local_name
    # Whether Adasum can be had depends on more than the tensor, and is checked each time.
    if name is None or work.signature.op is ReduceOp.ADASUM:
        return
    if len(DONE_WORKS) >= CAPACITY:
        DONE_WORKS.clear()
    work.array = work.out = None
    work.repeated = True
    DONE_WORKS[name] = work


def forget_handles() -> None:
    """Drop the handles and descriptions of an earlier life of the engine."""
    _PENDING.clear()
    DONE_WORKS.clear()
