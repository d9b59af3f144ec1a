"""Reductions of `tf.IndexedSlices`, such as gradients of embeddings: all ranks' slices, gathered."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from ringleader.collectives.operations import ReduceOp
from ringleader.common.process_sets import ProcessSet, group_of
from ringleader.common.reductions import Average, Sum
from ringleader.tensorflow.ops.allgather import gather_tensors


def reduce_sparse(
    slices: Sequence[tf.IndexedSlices],
    name: str | None,
    op: ReduceOp,
    factors: tuple[float, float],
    process_set: ProcessSet,
    ignore_name_scope: bool,
) -> list[tf.IndexedSlices]:
    """Return the slices of all ranks; of an Average the values are divided by the number of ranks.

    Values and indices travel together. An index may come several times, and counts each time.
    """
    if op not in (Average, Sum):
        raise NotImplementedError(
            f"tf.IndexedSlices can be summed or averaged, and op is {ReduceOp(op).name.title()}; "
            "use sparse_as_dense=True, or tf.convert_to_tensor"
        )
    if factors != (1.0, 1.0):
        raise NotImplementedError("prescale_factor and postscale_factor are not for tf.IndexedSlices")
    parts = [part for one in slices for part in (one.values, one.indices)]
    gathered = gather_tensors(parts, process_set, name, grouped=True, ignore_name_scope=ignore_name_scope)
    reduced = []
    for one, values, indices in zip(slices, gathered[::2], gathered[1::2], strict=True):
        if op == Average:
            ranks = group_of(process_set, "Allreduce").ranks.size
            values = values / tf.cast(ranks, values.dtype)
        reduced.append(tf.IndexedSlices(values, indices, dense_shape=one.dense_shape))
    return reduced
