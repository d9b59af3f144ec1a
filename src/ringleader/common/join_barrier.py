"""Operations without data: `barrier`, and `join` for ranks that have no more of it."""

from __future__ import annotations

from ringleader.collectives.operations import ReduceOp, Work
from ringleader.collectives.process_lifecycle import PROCESS
from ringleader.common.process_sets import (
    ProcessSet,
    count_from,
    global_process_set,
    group_of,
    next_serial,
)
from ringleader.common.submit_operation import signature_for

__all__ = ["barrier", "join"]


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of a process set have called this."""
    serial = next_serial(process_set)
    signature, digest = signature_for("barrier", "uint8", (), "cpu", ReduceOp.SUM, 0, 1.0, 1.0, "")
    work = Work(signature, digest, name=None, serial=serial, array=None, out=None)
    group_of(process_set, "Barrier").engine.run(work)


def join(device: int = -1) -> int:
    """Take part in the others' reductions with zeros until all ranks have called this.

    Returns the rank that was the last. ``device`` is Horovod's and not needed.
    """
    serial = next_serial(global_process_set)
    last, counted = group_of(global_process_set, "Join").engine.join(serial)
    count_from(counted + 1)
    PROCESS.get().at_join.call()
    return last
