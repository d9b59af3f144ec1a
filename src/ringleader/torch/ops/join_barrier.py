"""Meetings without data: `barrier`, and `join` for ranks that have no more of it."""

from __future__ import annotations

from ringleader.torch.basics import session
from ringleader.torch.ops.handles import count_from, next_serial
from ringleader.torch.ops.submit import meeting
from ringleader.torch.process_sets import ProcessSet, global_process_set, group_of


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of a process set have called this."""
    serial = next_serial(process_set.process_set_id)
    group_of(process_set, "Barrier").engine.run(meeting("barrier", serial))


def join(device: int = -1) -> int:
    """Take part in the others' reductions with zeros until all ranks have called this.

    Returns the rank that was the last. ``device`` is Horovod's and not needed.
    """
    serial = next_serial(global_process_set.process_set_id)
    last, counted = group_of(global_process_set, "Join").engine.join(serial)
    count_from(counted + 1)
    session().at_join.call()
    return last
