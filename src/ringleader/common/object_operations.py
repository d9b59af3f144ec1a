"""Python objects between ranks, over NumPy's arrays, for frameworks that those serve. Names are Horovod's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import cloudpickle
import numpy

from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.common.array_operations import ALLGATHER, BROADCAST_IN_PLACE
from ringleader.common.basics import rank
from ringleader.common.numpy_adapter import Array
from ringleader.common.process_sets import ProcessSet, global_process_set, group_of

FIRST_BYTES = 4096
"""An object that fits is broadcast with its length at once; a longer one follows it."""
_LENGTH_BYTES = 8
UNPICKLABLE = -1
"""Stands for the length of an object that cannot be pickled."""


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
    first[:_LENGTH_BYTES].view("int64")[0] = payload.size if error is None else UNPICKLABLE
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
    length = numpy.array([payload.size if error is None else UNPICKLABLE], "int64")
    lengths = ALLGATHER.run(length, f"{name}.sz", process_set).tolist()
    _check_pickled(lengths, error, group_of(process_set, "Allgather").global_ranks)
    everything = ALLGATHER.run(payload, f"{name}.t", process_set)
    edges = accumulate(lengths, initial=0)
    return [cloudpickle.loads(everything[start:end].data) for start, end in pairwise(edges)]


def _pickled(obj: Any) -> tuple[Array, Exception | None]:
    """Return the object as bytes, or the error that prevented it."""
    try:
        return numpy.frombuffer(bytearray(cloudpickle.dumps(obj)), "uint8"), None
    # An object may raise anything, and the others wait for this rank.
    except Exception as error:
        return numpy.empty(0, "uint8"), error


def _check_pickled(lengths: Sequence[int], error: Exception | None, ranks: Sequence[int]) -> None:
    """Raise on all ranks if one of them has an object that cannot be pickled."""
    if error is not None:
        raise error
    if UNPICKLABLE in lengths:
        raise HorovodInternalError(
            f"The object of rank {ranks[lengths.index(UNPICKLABLE)]} cannot be pickled; that rank says why."
        )
