"""Handles: operations that were begun and not waited for, and reductions in place that are kept after that.

Describing an operation costs more than a few KiB cost to reduce. So a reduction that is done, of one array or
of a group, is kept, without its arrays, until a like one is asked for under the same name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.group_engine import Engine
from ringleader.engine.operations import Work

CAPACITY = 4096
"""Reductions that are kept."""
GROUP = "group."
"""Begins the key of a group among the reductions that are kept; not a name that the engine knows."""


class KeptReduction:
    """A reduction that has a name, so that it can be done again without being described anew.

    While it is pending its handle stands for it; when it is done it is in `KEPT`.
    """

    __slots__ = ("arguments", "engine", "grouped", "key", "kinds", "number", "works")

    def __init__(
        self,
        *,
        engine: Engine,
        works: Sequence[Work],
        name: str,
        number: int | None,
        arguments: tuple[Any, ...],
        grouped: bool = False,
    ) -> None:
        """Take works, and what they were asked for with.

        ``number`` is that of the process set. ``arguments`` are those of the call but for arrays and name,
        and say whether the results are in the arrays.
        """
        if len(KEPT) >= CAPACITY:  # not where they are kept: those of one step are all pending here
            KEPT.clear()
        self.engine, self.works, self.number, self.arguments = engine, works, number, arguments
        self.grouped = grouped
        self.key = GROUP + name if grouped else name
        self.kinds = [(work.array.dtype, work.array.shape) for work in works]
        """Types and shapes of the arrays."""
        for work in works:
            work.repeated = True


_Pending = KeptReduction | tuple[Engine, Sequence[Work], Callable[[], Any]]
"""What a handle stands for; for all but a kept reduction: who does the works (one, or the members of a
group), and what returns the result of `synchronize` when all are done without an error."""

NEXT_HANDLE = itertools.count()
PENDING: dict[int, _Pending] = {}
KEPT: dict[str | None, KeptReduction] = {}
"""Reductions that are done, by their keys. An adapter takes one out to do it again, if it fits the arrays."""


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
    works = pending.works if isinstance(pending, KeptReduction) else pending[1] if pending else ()
    return all(work.done for work in works)


def synchronize(handle: int) -> Any:
    """Wait for an operation and return its result; None for a handle that is unknown or was waited for.

    Raises `HorovodInternalError` where the ranks did not agree, or a peer ended.
    """
    pending = PENDING.pop(handle, None)
    if isinstance(pending, KeptReduction):
        works = pending.works
        if pending.grouped:
            finish(pending.engine, works)
            done: Any = tuple([work.out for work in works])
        else:  # not by `finish`: there may be hundreds of these in a step
            if not works[0].done or works[0].error is not None:
                pending.engine.wait(works[0])
            done = works[0].out
        for work in works:
            work.array = work.out = None  # the arrays may go
        KEPT[pending.key] = pending
        return done
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


def forget_handles() -> None:
    """Drop what is left of an earlier life of the engine."""
    PENDING.clear()
    forget_kept()
