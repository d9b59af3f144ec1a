"""Reductions of dense tensors, which those of other operations' gradients are too."""

from __future__ import annotations

from typing import Any

from ringleader.common.array_operations import ALLREDUCE
from ringleader.common.process_sets import ProcessSet
from ringleader.common.reductions import Average
from ringleader.tensorflow.differentiable_operation import Call, DifferentiableOperation, Tensors


def _gradients(call: Call, _inputs: Tensors, _rows: Tensors, upstream: Tensors) -> Tensors:
    """Reduce the gradients in the same way."""
    return reduce_tensors(upstream, call.process_set, call.arguments, grouped=call.grouped)


_ALLREDUCE = DifferentiableOperation(
    title="Allreduce", operation=ALLREDUCE, shape=lambda shape: shape, gradients=_gradients
)


def reduce_tensors(
    tensors: Tensors,
    process_set: ProcessSet,
    arguments: tuple[Any, ...] = (Average, 1.0, 1.0),
    name: str | None = None,
    *,
    grouped: bool,
    ignore_name_scope: bool = False,
) -> Tensors:
    """Return the reductions of dense tensors; ``arguments``: the reduction, factors before and after it."""
    call = Call(
        name=name,
        process_set=process_set,
        arguments=arguments,
        grouped=grouped,
        ignore_name_scope=ignore_name_scope,
    )
    return _ALLREDUCE.run(tensors, call)[0]
