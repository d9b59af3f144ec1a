"""allreduce of trees of arrays. Arguments and their order are those of `ringleader.torch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from ringleader.collectives.operations import ReduceOp
from ringleader.common.array_operations import ALLREDUCE
from ringleader.common.compression import run_compressed
from ringleader.common.numpy_adapter import dtype_name
from ringleader.common.operation_checks import check_reduction
from ringleader.common.process_sets import ProcessSet, global_process_set, group_of
from ringleader.common.reductions import Average, Sum, handle_average_backwards_compatibility
from ringleader.jax.arrays import flatten
from ringleader.jax.compression import Compression, Compressor
from ringleader.jax.ops.collective import Collective


@dataclass(frozen=True, kw_only=True)
class Allreduce(Collective):
    """A reduction of every leaf, whose gradient is the same reduction of the gradients."""

    title = "Allreduce"
    operation = ALLREDUCE
    op: ReduceOp = Average
    prescale: float = 1.0
    postscale: float = 1.0

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the operation takes after the process set."""
        return (self.op, self.prescale, self.postscale)

    def gradients(self, grads: list[Any], inputs: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
        """Reduce the gradients."""
        if self.op not in (Average, Sum):
            raise NotImplementedError(f"hvd.allreduce with op={self.op.name.title()} has no gradient")
        return Allreduce(
            name=f"{self.name}.grad",
            process_set=self.process_set,
            op=self.op,
            prescale=self.prescale,
            postscale=self.postscale,
        ).apply(grads)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the reduction of every leaf over the ranks of a process set; differentiable.

    ``op`` is Average (the default), Sum, Adasum, Min, Max or Product. Every rank brings a tree of the same
    keys, shapes and types. ``prescale_factor`` is applied to each rank's values, ``postscale_factor`` to the
    result. Raises `ValueError` for what this rank sees to be wrong, `HorovodInternalError` on all ranks where
    they differ; from a compiled program that is a `jax.errors.JaxRuntimeError` whose text has that name.
    """
    chosen = handle_average_backwards_compatibility(op, average)
    leaves, structure, tree_name = flatten(tensor, Allreduce.title)
    collective = Allreduce(
        name=name or tree_name,
        process_set=process_set,
        op=chosen,
        prescale=prescale_factor,
        postscale=postscale_factor,
    )
    return jax.tree_util.tree_unflatten(structure, run_reduction(collective, leaves, compression))


def run_reduction(collective: Allreduce, leaves: Sequence[Any], compression: type[Compressor]) -> list[Any]:
    """Reduce arrays or tracers in their compressed form; refuse what this rank sees to be wrong."""
    group = group_of(collective.process_set, collective.title)

    def reduce(small: Sequence[Any]) -> list[Any]:
        for leaf in small:
            check_reduction(collective.op, dtype_name(leaf), group)
        return collective.apply(small)

    return run_compressed(compression, leaves, reduce)
