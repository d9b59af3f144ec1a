"""What the contract asks of a framework; an adapter's bridge fills it in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

ALL_TYPES = (
    "bool", "uint8", "int8", "uint16", "int16", "float16", "bfloat16", "uint32", "int32", "float32", "uint64",
    "int64", "float64",
)  # fmt: skip


class Bridge:
    """A module with Horovod's words, and the way between its tensors and arrays.

    Operations that an adapter lacks are left out of ``operations``; where it has other words for one, `call`
    translates.
    """

    hvd: ModuleType
    dtypes: Sequence[str] = ALL_TYPES
    operations: frozenset[str] = frozenset(
        {
            *("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "join"),
            *("grouped_allreduce", "grouped_allgather", "grouped_reducescatter"),
            *("broadcast_object", "allgather_object"),
        }
    )
    """What the adapter has. ``broadcast_`` and ``allreduce_`` are asked of `in_place`, gradients of
    `gradient`, where these operations are among them."""
    mismatch: type[Exception] = RuntimeError
    """What is raised on all ranks where they ask for different things."""

    def tensor(self, array: np.ndarray) -> Any:
        """Return a tensor of the same values and type."""
        raise NotImplementedError

    def array(self, tensor: Any) -> np.ndarray:
        """Return a tensor's values."""
        return np.asarray(tensor)

    def call(self, operation: str, given: Any, **words: Any) -> Any:
        """Do an operation on a tensor, or on a list of them."""
        return getattr(self.hvd, operation)(given, **words)

    def join(self) -> int:
        """Join the others; return the rank that was the last."""
        return int(self.hvd.join())

    def in_place(self, operation: str, array: np.ndarray, **words: Any) -> np.ndarray:
        """Do an operation of which the result is in a tensor or variable that held ``array``; return it."""
        raise NotImplementedError

    def gradient(self, function: Callable[[Any], Any], array: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the gradient of ``sum(function(x) * weights)`` at ``array``."""
        raise NotImplementedError
