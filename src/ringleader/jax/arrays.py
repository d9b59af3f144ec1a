"""JAX's arrays and NumPy's: on CPUs the same memory, both ways."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy

from ringleader.adapters.numpy_adapter import Array, dtype_name

LONGEST_NAME = 40
"""Characters of a tree's keys that an operation's name has."""


def flatten(tree: Any, title: str) -> tuple[list[Any], Any, str]:
    """Return the leaves of a tree as arrays or tracers, what puts them together, and a name for such trees.

    Numbers and NumPy's arrays become JAX's, floats with the bits that it has (32, unless told). The name is
    the same for trees of the same keys on all ranks. Raises `ValueError` for a leaf that cannot be exchanged,
    naming it and the operation (``title``).
    """
    pairs, structure = jax.tree_util.tree_flatten_with_path(tree)
    paths = [jax.tree_util.keystr(path) for path, _leaf in pairs]
    leaves = [_leaf(leaf, path, title) for path, (_path, leaf) in zip(paths, pairs, strict=True)]
    return leaves, structure, _tree_name(paths)


def _tree_name(paths: Sequence[str]) -> str:
    """Return a name for a tree: its keys, or of many the first and the last and a digest."""
    name = ",".join(paths)
    if len(name) <= LONGEST_NAME:
        return name or "array"
    return f"{paths[0][:LONGEST_NAME]}..{paths[-1][:LONGEST_NAME]}.{zlib.crc32(name.encode()):08x}"


def _leaf(leaf: Any, path: str, title: str) -> Any:
    where = f"{title}: the leaf {path} of the tree" if path else f"{title}: the argument"
    if not isinstance(leaf, jax.Array):  # tracers are instances, too
        try:
            given, leaf = leaf, jnp.asarray(leaf)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"{where} is not an array or a number of JAX's: {error}") from None
        if leaf.dtype.kind in "iu" and not numpy.array_equal(given, leaf):
            raise ValueError(
                f"{where} has integers that need 64 bits, and JAX has 32; "
                'jax.config.update("jax_enable_x64", True) gives it 64'
            )
    elif not isinstance(leaf, jax.core.Tracer) and not leaf.is_fully_addressable:
        raise ValueError(
            f"{where} is spread over several processes of jax.distributed; use JAX's own collectives for it"
        )
    try:
        dtype_name(leaf)
    except (ValueError, AttributeError):
        raise ValueError(f"{where} has elements of type {leaf.dtype}, which cannot be exchanged") from None
    return leaf


def to_numpy(array: jax.Array) -> Array:
    """Return the elements of an array: on a CPU in the same memory, which must not be written."""
    return numpy.asarray(array)


def to_jax(array: Array, like: jax.Array) -> jax.Array:
    """Return an array of a result, on the devices of ``like``; on a CPU in the result's memory.

    JAX takes aligned memory without a copy, so nothing else may use the result any more.
    """
    place: Any = None
    if getattr(like, "committed", True):
        place = like.sharding if like.shape == array.shape else min(like.devices(), key=lambda one: one.id)
    return jax.device_put(array, place, may_alias=True)
