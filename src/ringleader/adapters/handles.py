"""Handles: operations that were begun and not waited for.

Describing an operation costs more than a few KiB cost to reduce. So a reduction in place that is done is
kept, without its array, until a like one is asked for under the same name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from ringleader.engine.engine import Engine
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.operations import Work

CAPACITY = 4096
"""Reductions that are kept."""


class KeptReduction:
    """A reduction in place that has a name, so that it can be done again without being described anew.

    While it is pending its handle stands for it; when it is done it is in `KEPT`.
    """

    __slots__ = ("arguments", "dtype", "engine", "name", "number", "shape", "tensor", "work")

    def __init__(
        self,
        *,
        engine: Engine,
        work: Work,
        name: str,
        number: int | None,
        tensor: Any,
        arguments: tuple[Any, ...],
    ) -> None:
        """Take a work whose result is to be in the script's ``tensor``, and what it was asked for with.

        ``number`` is that of the process set. ``arguments`` are those of the call but for tensor and name.
        """
        self.engine = engine
        self.work = work
        self.name = name
        self.number = number
        self.tensor: Callable[[], Any] = ref(tensor)
        """Returns the tensor that it was last done for, None where that is gone."""
        self.dtype = tensor.dtype
        self.shape = tensor.shape
        self.arguments = arguments
        work.repeated = True


_Pending = KeptReduction | tuple[Engine, Sequence[Work], Callable[[], Any]]
"""What a handle stands for; for all but a kept reduction: who does the works (one, or the members of a
group), and what returns the result of `synchronize` when all are done without an error."""

NEXT_HANDLE = itertools.count()
PENDING: dict[int, _Pending] = {}
KEPT: dict[str | None, KeptReduction] = {}
"""Reductions that are done, by the name that the script gave them. An adapter takes one out to do it again,
if it fits the tensor."""

KEPT_GROUPS: dict[str | None, Any] = {}
"""Groups of reductions that are done, by the name that the script gave them, as an adapter keeps them."""


def new_handle(engine: Engine, works: Sequence[Work], result: Callable[[], Any]) -> int:
    """Return a handle for works that the engine was given; for ``result`` see `synchronize`."""
    handle = next(NEXT_HANDLE)
    PENDING[handle] = (engine, works, result)
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
    pending = PENDING.get(handle)
    if isinstance(pending, KeptReduction):
        return pending.work.done
    return pending is None or all(work.done for work in pending[1])


def synchronize(handle: int) -> Any:
    """Wait for an operation and return its result; None for a handle that is unknown or was waited for.

    Raises `HorovodInternalError` where the ranks did not agree, or a peer ended.
    """
    pending = PENDING.pop(handle, None)
    if isinstance(pending, KeptReduction):
        work = pending.work
        if not work.done or work.error is not None:
            pending.engine.wait(work)
        tensor = work.out
        work.array = work.out = None  # the tensor may go
        KEPT[pending.name] = pending
        return tensor
    if pending is None:
        return None
    engine, works, result = pending
    finish(engine, works)
    return result()


def synchronize_all(handles: Sequence[int]) -> list[Any]:
    """Wait for all of several operations; return their results, or raise the first error."""
    results: list[Any] = []
    error: Exception | None = None
    for handle in handles:
        try:
            results.append(synchronize(handle))
        except Exception as failed:
            error = error or failed
    if error is not None:
        raise error
    return results


def forget_kept() -> None:
    """Drop the reductions that are kept: their engine is gone, or their process set."""
    KEPT.clear()
    KEPT_GROUPS.clear()


def forget_handles() -> None:
    """Drop what is left of an earlier life of the engine."""
    PENDING.clear()
    forget_kept()
