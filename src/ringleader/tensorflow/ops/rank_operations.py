"""`join`, and ranks and sizes as tensors: in a graph their values are those of the time when it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import tensorflow as tf

from ringleader.collectives.process_lifecycle import PROCESS
from ringleader.common import basics, join_barrier
from ringleader.tensorflow.util import traced_as_written

NOT_INITIALIZED = -1
"""What `process_set_included_op` gives before `init`. The numbers are Horovod's."""
UNKNOWN_SET = -3
"""What it gives for a process set that does not exist."""


def _number(find: Callable[[], int], name: str | None, kind: str) -> Any:
    """Return a scalar, int32."""
    if tf.executing_eagerly():
        return tf.constant(find(), tf.int32)
    number = tf.numpy_function(
        lambda: numpy.asarray(find(), numpy.int32), [], tf.int32, stateful=True, name=name or f"Horovod{kind}"
    )
    return tf.ensure_shape(number, [])


def _ranks(process_set_id: int) -> tuple[int, ...]:
    ranks = PROCESS.get().registry.table.ranks(process_set_id)
    if ranks is None:
        raise ValueError(f"there is no process set {process_set_id}")
    return tuple(ranks)


def _included(process_set_id: int) -> int:
    session = PROCESS.session
    if session is None:
        return NOT_INITIALIZED
    ranks = session.registry.table.ranks(process_set_id)
    return UNKNOWN_SET if ranks is None else int(session.ranks.rank in ranks)


@traced_as_written
def join() -> Any:
    """Take part in the others' allreduces with zeros until all ranks have called this.

    Returns the rank that was the last, as a scalar.
    """
    return _number(join_barrier.join, None, "Join")


@traced_as_written
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return the number of ranks in a process set, as a scalar."""
    return _number(lambda: len(_ranks(process_set_id)), name, "Size")


@traced_as_written
def local_size_op(name: str | None = None) -> Any:
    """Return the number of ranks on this host, as a scalar."""
    return _number(basics.local_size, name, "LocalSize")


@traced_as_written
def rank_op(name: str | None = None) -> Any:
    """Return the number of this rank among all, as a scalar."""
    return _number(basics.rank, name, "Rank")


@traced_as_written
def local_rank_op(name: str | None = None) -> Any:
    """Return the number of this rank among those of its host, as a scalar."""
    return _number(basics.local_rank, name, "LocalRank")


@traced_as_written
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return as a scalar 1 where this rank is in a process set, 0 where not.

    It is `NOT_INITIALIZED` before `init`, and `UNKNOWN_SET` where there is no such set.
    """
    return _number(lambda: _included(process_set_id), name, "ProcessSetIncluded")
