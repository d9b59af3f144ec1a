"""The same parameters on all ranks. Names are Horovod's; trees are new ones, as JAX's arrays never change."""

from __future__ import annotations

from typing import Any

import jax
import numpy

from ringleader.common.process_sets import ProcessSet, global_process_set
from ringleader.jax.basics import allgather_object, broadcast_object
from ringleader.jax.ops.broadcast import broadcast

__all__ = ["allgather_object", "broadcast_object", "broadcast_parameters"]


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
