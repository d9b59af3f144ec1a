"""`shutdown` under JAX, and what has to wait for compiled programs that still run."""

from __future__ import annotations

from typing import Any

import jax

from ringleader.common import basics, object_exchange
from ringleader.common.process_sets import ProcessSet, global_process_set

__all__ = ["allgather_object", "barrier", "broadcast_object", "join", "shutdown"]


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


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of a process set have called this."""
    after_programs()
    basics.barrier(process_set)


def join(device: int = -1) -> int:
    """Take part in the others' reductions with zeros until all ranks have called this.

    Returns the rank that was the last. ``device`` is Horovod's and not needed.
    """
    after_programs()
    return basics.join(device)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the object of ``root_rank`` on all ranks of a process set; it travels pickled.

    What the others pass does not matter. Where it cannot be pickled, that error is raised on the root, and
    `HorovodInternalError` on the others.
    """
    after_programs()
    return object_exchange.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the objects of all ranks of a process set, in rank order; they travel pickled.

    Where one cannot be pickled, that error is raised on its rank, and `HorovodInternalError` on the others.
    """
    after_programs()
    return object_exchange.allgather_object(obj, name, process_set)
