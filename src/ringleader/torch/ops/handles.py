"""Operations that were begun and not waited for, and the counts by which unnamed ones are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.collectives.operations import Work
from ringleader.torch.ops.work_cache import REPEATED

_Kept = tuple[Engine, Sequence[Work], Callable[[], Any] | None]
"""What a handle stands for: who does the works (one, or the members of a group), and what returns the result
of `synchronize` when all are done without an error; None for one reduction in place. A plain tuple: there may
be hundreds in a step."""

_NEXT_HANDLE = itertools.count()
_HANDLES: dict[int, _Kept] = {}
_COUNTED: dict[int | None, int] = {}
"""Number of a process set → operations of it that this rank has asked for."""


def next_serial(process_set_id: int | None) -> int:
    """Count an operation of a process set; the number names it where the script does not.

    Every set counts for itself: ranks that are in different sets do not ask for the same ones. Every
    operation of every kind is counted before anything else is looked at, also one that fails then: where
    ranks differ in what fails, they count alike.
    """
    serial = _COUNTED.get(process_set_id, 0)
    _COUNTED[process_set_id] = serial + 1
    return serial


def count_from(serial: int, process_set_id: int = 0) -> None:
    """Go on counting a set's operations from a number: after a join, or where a number gets a new set."""
    _COUNTED[process_set_id] = serial


def run(engine: Engine, work: Work) -> torch.Tensor:
    """Have the engine do a work now and return the result; raises what went wrong."""
    engine.run(work)
    out: torch.Tensor = work.out
    return out


def begin(engine: Engine, works: Sequence[Work], result: Callable[[], Any]) -> int:
    """Hand works to the engine, all of them or none, and return the handle.

    A name that is pending here is a `ValueError`.
    """
    if len(works) == 1:
        engine.submit(works[0])
    else:
        engine.submit_all(works)
    handle = next(_NEXT_HANDLE)
    _HANDLES[handle] = (engine, works, result)
    return handle


def begin_in_place(engine: Engine, work: Work) -> int:
    """Hand a reduction of a tensor in its own memory to the engine and return the handle."""
    engine.submit(work)
    handle = next(_NEXT_HANDLE)
    _HANDLES[handle] = (engine, (work,), None)
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
    kept = _HANDLES.get(handle)
    return kept is None or all(work.done for work in kept[1])


def synchronize(handle: int) -> Any:
    """Wait for an operation and return its result; None for a handle that is unknown or was waited for.

    Raises `HorovodInternalError` where the ranks did not agree, or a peer ended.
    """
    kept = _HANDLES.pop(handle, None)
    if kept is None:
        return None
    engine, works, result = kept
    if result is None:
        work = works[0]
        engine.wait(work)
        tensor = work.out
        REPEATED.lay_by(work)
        return tensor
    finish(engine, works)
    return result()


def forget_handles() -> None:
    """Drop the handles of an earlier life of the engine, and count operations from the beginning."""
    _HANDLES.clear()
    _COUNTED.clear()
    REPEATED.clear()
