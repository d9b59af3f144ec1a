"""reducescatter, of one tensor and of groups. Signatures and their order are Horovod's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringleader.collectives.operations import ReduceOp
from ringleader.common.array_operations import REDUCESCATTER
from ringleader.common.compression import run_compressed
from ringleader.common.process_sets import ProcessSet, global_process_set, group_of
from ringleader.common.reductions import Average, Sum
from ringleader.tensorflow.compression import Compression, Compressor
from ringleader.tensorflow.differentiable_operation import Call, DifferentiableOperation, Tensors
from ringleader.tensorflow.errors import argument_error
from ringleader.tensorflow.ops.allgather import gather_tensors, other_rows
from ringleader.tensorflow.util import traced_as_written


def _gradients(call: Call, _inputs: Tensors, _rows: Tensors, upstream: Tensors) -> Tensors:
    """Gather the gradients. As in Horovod a sum has the number of ranks times that of an average."""
    op, prescale, postscale = call.arguments
    factor = prescale * postscale
    if op == Sum:
        factor *= group_of(call.process_set, "Reducescatter").ranks.size
    scaled = [gradient * factor for gradient in upstream]
    return gather_tensors(scaled, call.process_set, grouped=call.grouped)


_REDUCESCATTER = DifferentiableOperation(
    title="Reducescatter", operation=REDUCESCATTER, shape=other_rows, gradients=_gradients
)


def _scatter(
    tensors: Sequence[Any],
    name: str | None,
    op: ReduceOp,
    compression: type[Compressor],
    factors: tuple[float, float],
    process_set: ProcessSet,
    ignore_name_scope: bool,
    *,
    grouped: bool,
) -> list[Any]:
    if op not in (Average, Sum):
        raise argument_error(f"reducescatter is for Average and Sum, not {ReduceOp(op).name.title()}")
    call = Call(
        name=name,
        process_set=process_set,
        arguments=(op, *factors),
        grouped=grouped,
        ignore_name_scope=ignore_name_scope,
    )
    return run_compressed(compression, tensors, lambda small: _REDUCESCATTER.run(small, call)[0])


@traced_as_written
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce the tensor over the ranks of a process set and return this rank's rows of it; differentiable.

    The first ``rows % size`` ranks get one row more than the others. ``op`` is Average or Sum.
    ``device_dense`` is Horovod's: arrays are exchanged on the host.
    """
    factors = (prescale_factor, postscale_factor)
    return _scatter([tensor], name, op, compression, factors, process_set, ignore_name_scope, grouped=False)[
        0
    ]


@traced_as_written
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Any]:
    """Reduce several tensors and return this rank's rows of each; see `reducescatter`."""
    if not tensors:
        return []
    factors = (prescale_factor, postscale_factor)
    return _scatter(tensors, name, op, compression, factors, process_set, False, grouped=True)
