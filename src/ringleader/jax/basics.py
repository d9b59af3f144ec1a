"""`shutdown` under JAX, and what has to wait for compiled programs that still run."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import jax

from ringleader.adapters import basics, object_exchange

__all__ = ["allgather_object", "barrier", "broadcast_object", "join", "shutdown"]

P = ParamSpec("P")
T = TypeVar("T")


def after_programs() -> None:
    """Wait until compiled programs that were called have ended.

    A call returns before its program ends, and what the script does next must come after the program's
    operations on every rank. Raises the error of a program that failed.
    """
    jax.effects_barrier()


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
