"""Operations on NumPy's arrays, for frameworks whose host tensors NumPy sees in place.

An array is handed to the engine where it lies if it is contiguous, else as a copy. Results are new arrays in
memory that is aligned (`numpy_adapter.ALIGNMENT`), which a framework can take without a copy; in-place forms
write into the array itself, which must be contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from ringleader.adapters.numpy_adapter import Array, dtype_name
from ringleader.adapters.operation_kinds import OperationKinds, TensorKind
from ringleader.adapters.recycled_results import result_like
from ringleader.engine.operations import Work
from ringleader.engine.process_lifecycle import PROCESS


def _array(array: Array) -> Any:
    """Return what the engine takes; another framework's session (`begin_session`) has its own arrays."""
    return PROCESS.get().kernels.from_numpy(array)


def _result(work: Work, _array: Array) -> Array:
    out: Array = work.out
    return out if out.__class__ is numpy.ndarray else PROCESS.get().kernels.to_numpy(out)


def _values(array: Array, in_place: bool) -> Array:
    """Return the array's values in C order; `numpy.ascontiguousarray` would give a scalar a dimension."""
    if in_place and not (array.flags.c_contiguous and array.flags.writeable):
        raise ValueError("an operation in place needs an array that is contiguous and writeable")
    return numpy.asarray(array, order="C")


def _splits(splits: Sequence[int] | None) -> Sequence[int] | None:
    return None if splits is None else [int(rows) for rows in splits]


OPERATIONS = OperationKinds(
    TensorKind(
        values=_values,
        dtype=dtype_name,
        like=result_like,
        device=lambda _array: "cpu",
        array=_array,
        splits=_splits,
        result=_result,
        in_place=lambda _work, array: array,
        received=lambda work, array: (_result(work, array), work.received),
    )
)
ALLREDUCE, ALLREDUCE_IN_PLACE = OPERATIONS.allreduce, OPERATIONS.allreduce_in_place
ALLGATHER, ALLGATHER_ROWS = OPERATIONS.allgather, OPERATIONS.allgather_rows
BROADCAST, BROADCAST_IN_PLACE = OPERATIONS.broadcast, OPERATIONS.broadcast_in_place
ALLTOALL, REDUCESCATTER = OPERATIONS.alltoall, OPERATIONS.reducescatter
