"""allgather of trees of arrays. Arguments and their order are those of `ringleader.torch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy

from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.common.array_operations import ALLGATHER, ALLGATHER_ROWS
from ringleader.common.numpy_adapter import Array
from ringleader.common.operation_checks import check_rows
from ringleader.common.process_sets import ProcessSet, global_process_set, group_of
from ringleader.jax.arrays import flatten
from ringleader.jax.basics import after_programs
from ringleader.jax.ops.allreduce import Allreduce
from ringleader.jax.ops.collective import Collective, is_traced


@dataclass(frozen=True, kw_only=True)
class Allgather(Collective):
    """All ranks' rows of every leaf, whose gradient is this rank's rows of the average."""

    title = "Allgather"
    operation = ALLGATHER_ROWS
    rows: tuple[int, ...] | None = None
    """Rows of the results where they are known; None: every rank brings as many as this one."""

    def outputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the shapes of the results."""
        size = group_of(self.process_set, self.title).ranks.size
        rows = self.rows or tuple(like.shape[0] * size for like in self.inputs)
        return tuple(
            jax.ShapeDtypeStruct((count, *like.shape[1:]), like.dtype)
            for count, like in zip(rows, self.inputs, strict=True)
        )

    def run(self, arrays: Sequence[Array], *, traced: bool) -> Sequence[Array]:
        """Gather arrays of the host, and check what a compiled program took for granted."""
        pairs = super().run(arrays, traced=traced)
        for _rows, counts in pairs if traced and self.rows is None else ():
            if len(set(counts)) > 1:
                raise HorovodInternalError(
                    f"Allgather under jax.jit needs as many rows on every rank, and there are {counts}, by "
                    "rank; pad the arrays, or call hvd.allgather outside of jit"
                )
        return [rows for rows, _counts in pairs]

    def gradients(self, grads: list[Any], inputs: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
        """Average the gradients."""
        means = Allreduce(name=f"{self.name}.grad", process_set=self.process_set).apply(grads)
        rows = [like.shape[0] for like in inputs]
        starts = self._starts(rows, traced=is_traced(grads))
        return [mean[start : start + own] for mean, start, own in zip(means, starts, rows, strict=True)]

    def _starts(self, rows: Sequence[int], *, traced: bool) -> list[int]:
        """Return where this rank's rows begin in each result."""
        ranks = group_of(self.process_set, self.title).ranks
        if self.rows is not None:  # those of a reducescatter: the first ranks have one more
            return [
                ranks.rank * (whole // ranks.size) + min(ranks.rank, whole % ranks.size)
                for whole in self.rows
            ]
        if traced:
            return [ranks.rank * own for own in rows]
        after_programs()
        everyones = ALLGATHER.run(numpy.array([rows], "int64"), f"{self.name}.rows", self.process_set)
        return everyones[: ranks.rank].sum(axis=0).tolist()


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Return all ranks' leaves of a process set, joined along the first dimension; differentiable.

    The first dimension may differ between ranks, but not under `jax.jit`; the others and the type are equal.
    """
    leaves, structure, tree_name = flatten(tensor, Allgather.title)
    group_of(process_set, Allgather.title)
    for leaf in leaves:
        check_rows(leaf.shape, "gathered")
    collective = Allgather(name=name or tree_name, process_set=process_set)
    return jax.tree_util.tree_unflatten(structure, collective.apply(leaves))
