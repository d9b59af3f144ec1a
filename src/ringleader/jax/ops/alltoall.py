"""alltoall of trees of arrays. Arguments and their order are those of `ringleader.torch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy

from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.common.array_operations import ALLTOALL
from ringleader.common.numpy_adapter import Array
from ringleader.common.operation_checks import check_rows, check_splits
from ringleader.common.process_sets import ProcessSet, global_process_set, group_of
from ringleader.jax.arrays import flatten, to_jax, to_numpy
from ringleader.jax.basics import after_programs
from ringleader.jax.ops.collective import Collective, is_traced


@dataclass(frozen=True, kw_only=True)
class Alltoall(Collective):
    """Equal parts of the rows of every leaf for each rank; the gradient goes back the same way."""

    title = "Alltoall"
    operation = ALLTOALL

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the operation takes after the process set."""
        return (None,)

    def run(self, arrays: Sequence[Array], *, traced: bool) -> Sequence[Array]:
        """Exchange rows of arrays of the host, and check what a compiled program took for granted."""
        pairs = super().run(arrays, traced=traced)
        for array, (rows, counts) in zip(arrays, pairs, strict=True):
            if traced and rows.shape != array.shape:
                raise HorovodInternalError(
                    f"Alltoall under jax.jit needs as many rows on every rank; this one got {counts}, in the "
                    "order of ranks; call hvd.alltoall outside of jit"
                )
        return [rows for rows, _counts in pairs]

    def gradients(self, grads: list[Any], inputs: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
        """Return the gradients to where the rows came from."""
        return Alltoall(name=f"{self.name}.grad", process_set=self.process_set).apply(grads)


def alltoall(
    tensor: Any,
    splits: Sequence[int] | jax.Array | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Give each rank of a process set some rows of every leaf, return the rows that came; differentiable.

    Rows go in equal parts, in the order of ranks. With ``splits``, for one array and outside of `jax.jit`,
    they tell how many rows each rank gets; rows after these go nowhere, and the result is a pair: the rows,
    and how many came from each rank (int32).
    """
    leaves, structure, tree_name = flatten(tensor, Alltoall.title)
    size = group_of(process_set, Alltoall.title).ranks.size
    for leaf in leaves:
        check_rows(leaf.shape, "split")
    if splits is not None:
        return _split(leaves, splits, name or tree_name, process_set)
    for leaf in leaves:
        check_splits(leaf.shape[0], None, size)
    collective = Alltoall(name=name or tree_name, process_set=process_set)
    return jax.tree_util.tree_unflatten(structure, collective.apply(leaves))


def _split(
    leaves: list[Any], splits: Sequence[int] | jax.Array, name: str, process_set: ProcessSet
) -> tuple[jax.Array, jax.Array]:
    if len(leaves) != 1:
        raise ValueError("hvd.alltoall with splits is for one array, not for a tree")
    if is_traced([*leaves, splits]):
        raise ValueError(
            "hvd.alltoall with splits cannot be compiled or differentiated: how many rows come is known only "
            "when the others have sent them; call it outside of jax.jit and jax.grad"
        )
    after_programs()
    counts = numpy.asarray(splits).tolist()
    rows, received = ALLTOALL.run(to_numpy(leaves[0]), name, process_set, counts)
    return to_jax(rows, leaves[0]), jnp.asarray(received, "int32")
