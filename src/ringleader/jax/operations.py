"""The operations of scripts, on trees of arrays; `collective` does them, eagerly and in compiled programs.

Arguments and their order are those of `ringleader.torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy

from ringleader.adapters import basics, object_exchange
from ringleader.adapters.array_operations import OPERATIONS
from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.adapters.reductions import Average, handle_average_backwards_compatibility
from ringleader.engine.operations import ReduceOp
from ringleader.jax.collective import after_programs, flatten, is_traced, on_tree, to_jax, to_numpy
from ringleader.jax.compression import Compression, Compressor

__all__ = [
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_parameters",
    "join",
    "reducescatter",
    "shutdown",
]

P = ParamSpec("P")
T = TypeVar("T")


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
    arguments = (chosen, prescale_factor, postscale_factor)
    return on_tree(OPERATIONS.allreduce, tensor, name, process_set, arguments, compression)


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Return all ranks' leaves of a process set, joined along the first dimension; differentiable.

    The first dimension may differ between ranks, but not under `jax.jit`; the others and the type are equal.
    """
    return on_tree(OPERATIONS.allgather_rows, tensor, name, process_set)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the leaves of ``root_rank`` on all ranks of a process set; differentiable.

    ``root_rank`` counts among all ranks; `ValueError` where it is not in the set.
    """
    return on_tree(OPERATIONS.broadcast, tensor, name, process_set, (root_rank,))


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
    if splits is None:
        return on_tree(OPERATIONS.alltoall, tensor, name, process_set, (None,))
    leaves, _structure, tree_name = flatten(tensor, "Alltoall")
    if len(leaves) != 1:
        raise ValueError("hvd.alltoall with splits is for one array, not for a tree")
    if is_traced([*leaves, splits]):
        raise ValueError(
            "hvd.alltoall with splits cannot be compiled or differentiated: how many rows come is known only "
            "when the others have sent them; call it outside of jax.jit and jax.grad"
        )
    after_programs()
    counts = numpy.asarray(splits).tolist()
    rows, received = OPERATIONS.alltoall.run(to_numpy(leaves[0]), name or tree_name, process_set, counts)
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
    arguments = (ReduceOp(op), prescale_factor, postscale_factor)
    return on_tree(OPERATIONS.reducescatter, tensor, name, process_set, arguments, compression)


def broadcast_parameters(
    params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Return a tree with the arrays of ``root_rank``, on all ranks of a process set.

    For parameters and for an optimizer's state: ``params = hvd.broadcast_parameters(params)``. Keys of
    `jax.random` are broadcast too. Leaves that are not arrays, as Python's numbers, stay as they are.
    """
    leaves, structure = jax.tree_util.tree_flatten(params)
    chosen: list[Any] = [leaf if isinstance(leaf, jax.Array | numpy.ndarray) else None for leaf in leaves]
    kinds = {
        at: jax.random.key_impl(leaf)
        for at, leaf in enumerate(chosen)
        if leaf is not None and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    }
    for at in kinds:
        chosen[at] = jax.random.key_data(chosen[at])
    # By their paths, so that ranks with other trees get an error.
    tree = jax.tree_util.tree_unflatten(structure, chosen)
    told = iter(jax.tree_util.tree_leaves(broadcast(tree, root_rank, process_set=process_set)))
    for at, leaf in enumerate(chosen):
        if leaf is not None:
            leaves[at] = next(told)
    for at, kind in kinds.items():
        leaves[at] = jax.random.wrap_key_data(leaves[at], impl=kind)
    return jax.tree_util.tree_unflatten(structure, leaves)


def shutdown() -> None:
    """Part from the other ranks, when compiled programs that still run have ended; `init` may follow."""
    try:
        after_programs()
    finally:
        basics.shutdown()


def _after_programs(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that waits for compiled programs first."""

    @wraps(function)
    def waiting(*args: P.args, **words: P.kwargs) -> T:
        after_programs()
        return function(*args, **words)

    return waiting


barrier, join = _after_programs(basics.barrier), _after_programs(basics.join)
broadcast_object = _after_programs(object_exchange.broadcast_object)
allgather_object = _after_programs(object_exchange.allgather_object)
