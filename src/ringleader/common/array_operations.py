"""Operations on NumPy's arrays, for frameworks whose host tensors NumPy sees in place.

An array is handed to the engine where it lies if it is contiguous, else as a copy. Results are new arrays in
memory that is aligned (`numpy_adapter.ALIGNMENT`), which a framework can take without a copy; in-place forms
write into the array itself, which must be contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy

from ringleader.collectives.operations import ReduceOp, Work
from ringleader.collectives.process_lifecycle import PROCESS
from ringleader.collectives.rank_group import Group
from ringleader.common.numpy_adapter import Array, dtype_name, empty_like
from ringleader.common.operation_checks import (
    check_reduction,
    check_rows,
    check_scattered_reduction,
    check_splits,
)
from ringleader.common.submit_operation import Operation, describe_work


def _work(group: Group, kind: str, array: Array, out: Array | None, **words: Any) -> Work:
    """Describe an operation; another framework's session (`begin_session`) has arrays of its own."""
    take = group.engine.kernels.from_numpy
    mine = take(array)
    theirs = mine if out is array else None if out is None else take(out)
    return describe_work(kind, mine, theirs, dtype=dtype_name(array), shape=array.shape, **words)


def _result(work: Work, _array: Array) -> Array:
    out: Array = work.out
    return out if out.__class__ is numpy.ndarray else PROCESS.get().kernels.to_numpy(out)


def _in_place(_work: Work, array: Array) -> Array:
    return array


def _contiguous(array: Array, *, in_place: bool = False) -> Array:
    """Return the array's values in C order; `numpy.ascontiguousarray` would give a scalar a dimension."""
    if in_place and not (array.flags.c_contiguous and array.flags.writeable):
        raise ValueError("an operation in place needs an array that is contiguous and writeable")
    return numpy.asarray(array, order="C")


def _allreduce(
    in_place: bool,
    group: Group,
    array: Array,
    name: str | None,
    serial: int,
    op: ReduceOp,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> Work:
    data = _contiguous(array, in_place=in_place)
    check_reduction(op, dtype_name(data), group)
    out = data if in_place else empty_like(data)
    return _work(
        group, "allreduce", data, out, name=name, serial=serial, op=op, prescale=prescale, postscale=postscale
    )


def _allgather(group: Group, array: Array, name: str | None, serial: int) -> Work:
    check_rows(array.shape, "gathered")
    return _work(group, "allgather", _contiguous(array), None, name=name, serial=serial)


def _broadcast(
    in_place: bool, group: Group, array: Array, name: str | None, serial: int, root_rank: int
) -> Work:
    """Describe a broadcast; ``root_rank`` counts among all ranks, whatever the set."""
    data = _contiguous(array, in_place=in_place)
    out = data if in_place else empty_like(data)
    return _work(group, "broadcast", data, out, name=name, serial=serial, root=group.root(root_rank))


def _alltoall(
    group: Group, array: Array, name: str | None, serial: int, splits: Sequence[int] | None
) -> Work:
    check_rows(array.shape, "split")
    wanted = None if splits is None else [int(rows) for rows in splits]
    counts = check_splits(array.shape[0], wanted, group.ranks.size)
    return _work(group, "alltoall", _contiguous(array), None, name=name, serial=serial, splits=counts)


def _reducescatter(
    group: Group,
    array: Array,
    name: str | None,
    serial: int,
    op: ReduceOp,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> Work:
    op = check_scattered_reduction(op, dtype_name(array), group)
    check_rows(array.shape, "scattered")
    data = _contiguous(array)
    return _work(
        group,
        "reducescatter",
        data,
        None,
        name=name,
        serial=serial,
        op=op,
        prescale=prescale,
        postscale=postscale,
    )


def _received(work: Work, _array: Array) -> tuple[Array, tuple[int, ...]]:
    """Return the rows that came, and how many from each rank."""
    return _result(work, _array), work.received


ALLREDUCE = Operation("Allreduce", partial(_allreduce, False), result=_result)
"""Arguments: reduction, factor before it, factor after it."""
ALLREDUCE_IN_PLACE = Operation("Allreduce", partial(_allreduce, True), result=_in_place)
"""The same, with the result in the array."""
ALLGATHER = Operation("Allgather", _allgather, result=_result)
"""Has no arguments."""
ALLGATHER_ROWS = Operation("Allgather", _allgather, result=_received)
"""The same; the result is the rows, and how many came from each rank."""
BROADCAST = Operation("Broadcast", partial(_broadcast, False), result=_result, broadcasts=True)
"""Argument: the root among all ranks."""
BROADCAST_IN_PLACE = Operation("Broadcast", partial(_broadcast, True), result=_in_place, broadcasts=True)
"""The same, with the result in the array."""
ALLTOALL = Operation("Alltoall", _alltoall, result=_received)
"""Argument: the splits, None for equal parts. The result is rows, and how many came from each rank."""
REDUCESCATTER = Operation("Reducescatter", _reducescatter, result=_result)
"""Arguments: reduction (a mean or a sum), factor before it, factor after it."""
