"""reducescatter of trees of arrays. Arguments and their order are those of `ringleader.torch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from ringleader.collectives.operations import ReduceOp
from ringleader.common.array_operations import REDUCESCATTER
from ringleader.common.compression import run_compressed
from ringleader.common.numpy_adapter import dtype_name
from ringleader.common.operation_checks import check_rows, check_scattered_reduction
from ringleader.common.process_sets import ProcessSet, global_process_set, group_of
from ringleader.common.reductions import Average, Sum
from ringleader.jax.arrays import flatten
from ringleader.jax.compression import Compression, Compressor
from ringleader.jax.ops.allgather import Allgather
from ringleader.jax.ops.collective import Collective


@dataclass(frozen=True, kw_only=True)
class Reducescatter(Collective):
    """This rank's rows of the reduction of every leaf; the gradient is all ranks' gradients, gathered."""

    title = "Reducescatter"
    operation = REDUCESCATTER
    op: ReduceOp
    prescale: float
    postscale: float

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the operation takes after the process set."""
        return (self.op, self.prescale, self.postscale)

    def outputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the shapes of the results: the first ranks get a row more where they cannot be shared."""
        ranks = group_of(self.process_set, self.title).ranks

        def rows(count: int) -> int:
            return count // ranks.size + (ranks.rank < count % ranks.size)

        return tuple(
            jax.ShapeDtypeStruct((rows(like.shape[0]), *like.shape[1:]), like.dtype) for like in self.inputs
        )

    def gradients(self, grads: list[Any], inputs: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
        """Gather the gradients. As in Horovod a sum has the number of ranks times that of an average."""
        size = group_of(self.process_set, self.title).ranks.size if self.op is Sum else 1
        scaled = [grad * (size * self.prescale * self.postscale) for grad in grads]
        return Allgather(
            name=f"{self.name}.grad",
            process_set=self.process_set,
            rows=tuple(like.shape[0] for like in inputs),
        ).apply(scaled)


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce every leaf over the ranks of a process set and return this rank's rows of it; differentiable.

    The first ``rows % size`` ranks get one row more than the others. ``op`` is Average or Sum;
    `HorovodInternalError` for any other.
    """
    leaves, structure, tree_name = flatten(tensor, Reducescatter.title)
    group = group_of(process_set, Reducescatter.title)
    collective = Reducescatter(
        name=name or tree_name,
        process_set=process_set,
        op=ReduceOp(op),
        prescale=prescale_factor,
        postscale=postscale_factor,
    )

    def reduce(small: Sequence[Any]) -> list[Any]:
        for leaf in small:
            check_rows(leaf.shape, "scattered")
            check_scattered_reduction(op, dtype_name(leaf), group)
        return collective.apply(small)

    return jax.tree_util.tree_unflatten(structure, run_compressed(compression, leaves, reduce))
