"""Numbers and objects that ranks tell each other about their work, on the engine that they exchange with."""

from __future__ import annotations

from array import array
from ctypes import string_at
from io import BytesIO
from typing import Any

import cloudpickle

from ringleader.collectives.engine import Engine
from ringleader.collectives.kernels import ITEMSIZE
from ringleader.collectives.operations import ReduceOp, Signature, Work, signature_digest

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
    return Work(signature, signature_digest(signature), name=name, serial=0, array=memory, out=memory)
