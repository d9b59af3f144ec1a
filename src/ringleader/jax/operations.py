"""The operations of scripts, on trees of arrays; `collective` does them, eagerly and in compiled programs.

Arguments and their order are those of `ringleader.torch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy

from ringleader.adapters.compression import run_compressed
from ringleader.adapters.numpy_adapter import dtype_name
from ringleader.adapters.operation_kinds import (
    check_reduction,
    check_rows,
    check_scattered_reduction,
    check_splits,
)
from ringleader.adapters.process_sets import ProcessSet, global_process_set, group_of
from ringleader.adapters.reductions import Average, handle_average_backwards_compatibility
from ringleader.engine.operations import ReduceOp
from ringleader.jax.arrays import flatten, to_jax, to_numpy
from ringleader.jax.basics import after_programs
from ringleader.jax.collective import Allgather, Allreduce, Alltoall, Broadcast, Reducescatter, is_traced
from ringleader.jax.compression import Compression, Compressor

__all__ = ["allgather", "allreduce", "alltoall", "broadcast", "broadcast_parameters", "reducescatter"]


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
    leaves, structure, tree_name = flatten(tensor, "Allreduce")
    words = (chosen, prescale_factor, postscale_factor)
    collective = Allreduce(name=name or tree_name, process_set=process_set, arguments=words)
    return jax.tree_util.tree_unflatten(structure, run_reduction(collective, leaves, compression))


def run_reduction(collective: Allreduce, leaves: Sequence[Any], compression: type[Compressor]) -> list[Any]:
    """Reduce arrays or tracers in their compressed form; refuse what this rank sees to be wrong."""
    group = group_of(collective.process_set, collective.operation.title)

    def reduce(small: Sequence[Any]) -> list[Any]:
        for leaf in small:
            check_reduction(collective.arguments[0], dtype_name(leaf), group)
        return collective.apply(small)

    return run_compressed(compression, leaves, reduce)


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Return all ranks' leaves of a process set, joined along the first dimension; differentiable.

    The first dimension may differ between ranks, but not under `jax.jit`; the others and the type are equal.
    """
    leaves, structure, tree_name = flatten(tensor, "Allgather")
    group_of(process_set, "Allgather")
    for leaf in leaves:
        check_rows(leaf.shape, "gathered")
    collective = Allgather(name=name or tree_name, process_set=process_set)
    return jax.tree_util.tree_unflatten(structure, collective.apply(leaves))


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the leaves of ``root_rank`` on all ranks of a process set; differentiable.

    ``root_rank`` counts among all ranks; `ValueError` where it is not in the set.
    """
    leaves, structure, tree_name = flatten(tensor, "Broadcast")
    group_of(process_set, "Broadcast").root(root_rank)
    collective = Broadcast(name=name or tree_name, process_set=process_set, arguments=(root_rank,))
    return jax.tree_util.tree_unflatten(structure, collective.apply(leaves))


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
    leaves, structure, tree_name = flatten(tensor, "Alltoall")
    size = group_of(process_set, "Alltoall").ranks.size
    for leaf in leaves:
        check_rows(leaf.shape, "split")
    if splits is not None:
        return _split(leaves, splits, name or tree_name, process_set)
    for leaf in leaves:
        check_splits(leaf.shape[0], None, size)
    collective = Alltoall(name=name or tree_name, process_set=process_set, arguments=(None,))
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
    rows, received = Alltoall.operation.run(to_numpy(leaves[0]), name, process_set, counts)
    return to_jax(rows, leaves[0]), jnp.asarray(received, "int32")


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
    leaves, structure, tree_name = flatten(tensor, "Reducescatter")
    group = group_of(process_set, "Reducescatter")
    words = (ReduceOp(op), prescale_factor, postscale_factor)
    collective = Reducescatter(name=name or tree_name, process_set=process_set, arguments=words)

    def reduce(small: Sequence[Any]) -> list[Any]:
        for leaf in small:
            check_rows(leaf.shape, "scattered")
            check_scattered_reduction(op, dtype_name(leaf), group)
        return collective.apply(small)

    return jax.tree_util.tree_unflatten(structure, run_compressed(compression, leaves, reduce))


def broadcast_parameters(
    params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Return a tree with the arrays of ``root_rank``, on all ranks of a process set.

    For parameters and for an optimizer's state: ``params = hvd.broadcast_parameters(params)``. Keys of
    `jax.random` are broadcast too. Leaves that are not arrays, as Python's numbers, stay as they are.
    """
    leaves, structure = jax.tree_util.tree_flatten(params)
    there = [at for at, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | numpy.ndarray)]
    keys = {at for at in there if jax.dtypes.issubdtype(leaves[at].dtype, jax.dtypes.prng_key)}
    # By their paths, so that ranks with other trees are told so.
    chosen = jax.tree_util.tree_unflatten(
        structure,
        [
            (jax.random.key_data(leaf) if at in keys else leaf) if at in there else None
            for at, leaf in enumerate(leaves)
        ],
    )
    told = iter(jax.tree_util.tree_leaves(broadcast(chosen, root_rank, process_set=process_set)))
    for at in there:
        data = next(told)
        leaves[at] = (
            jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaves[at])) if at in keys else data
        )
    return jax.tree_util.tree_unflatten(structure, leaves)
