"""Objects between ranks, and numbers and objects that ranks tell each other about their work.

The first are for scripts, over NumPy's arrays; names are Horovod's. The others go to one engine.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from ctypes import string_at
from io import BytesIO
from itertools import accumulate, pairwise
from typing import Any

import cloudpickle
import numpy

from ringleader.adapters.array_operations import ALLGATHER_ROWS, BROADCAST_IN_PLACE
from ringleader.adapters.basics import rank
from ringleader.adapters.numpy_adapter import Array
from ringleader.adapters.process_sets import ProcessSet, global_process_set, group_of
from ringleader.adapters.submit_operation import named_work
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.group_engine import Engine
from ringleader.engine.operations import ReduceOp, Signature, Work
from ringleader.engine.reduction_kernels import ITEMSIZE

FIRST_BYTES = 4096
"""An object that fits is broadcast with its length at once; a longer one follows it."""
_LENGTH_BYTES = 8
_TYPES = {"B": "uint8", "q": "int64", "d": "float64"}


def sum_numbers(engine: Engine, numbers: array[Any], name: str, op: ReduceOp = ReduceOp.SUM) -> list[Any]:
    """Sum up bytes, integers or floats (``B``, ``q``, ``d``) over the ranks, or reduce them otherwise."""
    _run(engine, "allreduce", numbers, name, shape=(len(numbers),), op=op)
    return numbers.tolist()


def any_rank(engine: Engine, asks: bool, name: str) -> bool:
    """Return whether any rank asks, alike on all of them; ranks that have joined do not ask."""
    return bool(sum_numbers(engine, array("B", [asks]), name, ReduceOp.MAX)[0])


def gather_objects(engine: Engine, obj: Any, name: str) -> list[Any]:
    """Return the objects of all ranks in rank order; they travel pickled."""
    everything = BytesIO(_gathered(engine, array("B", cloudpickle.dumps(obj)), f"{name}.t"))
    return [cloudpickle.load(everything) for _ in range(engine.ranks.size)]  # each knows where it ends


def _gathered(engine: Engine, numbers: array[Any], name: str) -> bytes:
    out = _run(engine, "allgather", numbers, name).out
    kernels = engine.kernels
    return string_at(kernels.address(out), kernels.count(out) * ITEMSIZE[_TYPES[numbers.typecode]])


def sum_work(engine: Engine, numbers: array[Any], name: str) -> Work:
    """Return a work that sums up numbers over the ranks in place, to be submitted with others."""
    return _work(engine, "allreduce", numbers, name, shape=(len(numbers),))


def _run(engine: Engine, kind: str, numbers: array[Any], name: str, **more: Any) -> Work:
    work = _work(engine, kind, numbers, name, **more)
    engine.run(work)
    return work


def _work(engine: Engine, kind: str, numbers: array[Any], name: str, **more: Any) -> Work:
    signature = Signature(kind=kind, dtype=_TYPES[numbers.typecode], **more)
    memory = engine.kernels.over(numbers, signature.dtype, len(numbers))
    return named_work(signature, name, memory, memory)


# of scripts


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the object of ``root_rank`` on all ranks of a process set; it travels pickled.

    What the others pass does not matter. Where it cannot be pickled, that error is raised on the root, and
    `HorovodInternalError` on the others.
    """
    # Not by the count of operations, in which ranks may differ: some may be members of more sets.
    name = "broadcast_object" if name is None else name
    mine = rank() == root_rank
    payload, error = _pickled(obj) if mine else (numpy.empty(0, "uint8"), None)
    first = numpy.zeros(FIRST_BYTES, "uint8")
    first[:_LENGTH_BYTES].view("int64")[0] = payload.size
    if payload.size <= FIRST_BYTES - _LENGTH_BYTES:
        first[_LENGTH_BYTES : _LENGTH_BYTES + payload.size] = payload
    BROADCAST_IN_PLACE.run(first, f"{name}.sz", process_set, root_rank)
    length = int(first[:_LENGTH_BYTES].view("int64")[0])
    _check_pickled([length], error, [root_rank])
    if length <= FIRST_BYTES - _LENGTH_BYTES:
        return obj if mine else cloudpickle.loads(first[_LENGTH_BYTES : _LENGTH_BYTES + length].data)
    if not mine:
        payload = numpy.empty(length, "uint8")
    BROADCAST_IN_PLACE.run(payload, f"{name}.t", process_set, root_rank)
    return obj if mine else cloudpickle.loads(payload.data)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the objects of all ranks of a process set, in rank order; they travel pickled.

    Where one cannot be pickled, that error is raised on its rank, and `HorovodInternalError` on the others.
    """
    name = "allgather_object" if name is None else name
    payload, error = _pickled(obj)
    everything, lengths = ALLGATHER_ROWS.run(payload, f"{name}.t", process_set)
    _check_pickled(lengths, error, group_of(process_set, "Allgather").global_ranks)
    edges = accumulate(lengths, initial=0)
    return [cloudpickle.loads(everything[start:end].data) for start, end in pairwise(edges)]


def _pickled(obj: Any) -> tuple[Array, Exception | None]:
    """Return the object as bytes, which are some, or the error that prevented it and none."""
    try:
        return numpy.frombuffer(bytearray(cloudpickle.dumps(obj)), "uint8"), None
    # An object may raise anything, and the others wait for this rank.
    except Exception as error:
        return numpy.empty(0, "uint8"), error


def _check_pickled(lengths: Sequence[int], error: Exception | None, ranks: Sequence[int]) -> None:
    """Raise on all ranks if one of them has an object that cannot be pickled."""
    if error is not None:
        raise error
    if 0 in lengths:
        raise HorovodInternalError(
            f"The object of rank {ranks[lengths.index(0)]} cannot be pickled; that rank says why."
        )
