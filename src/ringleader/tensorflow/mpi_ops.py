"""`init` and `join` under TensorFlow, ranks and sizes as tensors, and all other names of Horovod's module.

`operations` has the operations. In a graph the values of ranks and sizes are those of the time when it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy
import tensorflow as tf

from ringleader.adapters import basics, names
from ringleader.adapters.basics import HorovodBasics
from ringleader.adapters.basics import shutdown as shutdown
from ringleader.adapters.names import *
from ringleader.adapters.process_sets import ProcessSet
from ringleader.adapters.util import num_rank_is_power_2
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.tensorflow import operations
from ringleader.tensorflow.operations import *
from ringleader.tensorflow.operations import _allreduce as _allreduce
from ringleader.tensorflow.operations import _grouped_allreduce as _grouped_allreduce
from ringleader.tensorflow.util import traced_as_written

check_num_rank_power_of_2 = num_rank_is_power_2
_basics = HorovodBasics(__file__)
"""Horovod's object of ``rank``, ``size`` and so on, which scripts take from here."""

if not TYPE_CHECKING:  # which goes by the imports above
    __all__ = sorted(
        {"check_num_rank_power_of_2", "cuda_built", "init", "join", "local_rank_op", "local_size_op"}
        | {"nccl_built", "process_set_included_op", "rank_op", "rocm_built", "shutdown", "size_op"}
        | {*names.__all__, *operations.__all__}
    )

NOT_INITIALIZED = -1
"""What `process_set_included_op` gives before `init`. The numbers are Horovod's."""
UNKNOWN_SET = -3
"""What it gives for a process set that does not exist."""


def init(comm: Any = None, process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Join the other ranks; see `ringleader.adapters.basics.init`.

    TensorFlow takes the memory of every GPU that it sees, so it is shown this rank's own, unless the script
    has chosen already.
    """
    basics.init(comm, process_sets)
    if "RINGLEADER_LAUNCHED" not in os.environ or "," not in os.environ.get("CUDA_VISIBLE_DEVICES", ""):
        return
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) > 1 and tf.config.get_visible_devices("GPU") == gpus:
        with suppress(RuntimeError):  # GPUs are in use already
            tf.config.set_visible_devices(gpus[basics.local_rank() % len(gpus)], "GPU")


def nccl_built(verbose: bool = False) -> int:
    """Return 0: tensors of a GPU are brought to the host, and NCCL carries none."""
    return 0


def cuda_built(verbose: bool = False) -> bool:
    """Return whether this TensorFlow has tensors on GPUs of Nvidia."""
    return bool(tf.test.is_built_with_cuda())


def rocm_built(verbose: bool = False) -> bool:
    """Return whether this TensorFlow has tensors on GPUs of AMD."""
    return bool(tf.test.is_built_with_rocm())


def _number(find: Callable[[], int], name: str | None, kind: str) -> Any:
    """Return a scalar, int32."""
    if tf.executing_eagerly():
        return tf.constant(find(), tf.int32)
    number = tf.numpy_function(
        lambda: numpy.asarray(find(), numpy.int32), [], tf.int32, stateful=True, name=name or f"Horovod{kind}"
    )
    return tf.ensure_shape(number, [])


def _size(process_set_id: int) -> int:
    ranks = PROCESS.get().registry.table.ranks(process_set_id)
    if ranks is None:
        raise ValueError(f"there is no process set {process_set_id}")
    return len(ranks)


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
    return _number(basics.join, None, "Join")


@traced_as_written
def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Return the number of ranks in a process set, as a scalar."""
    return _number(lambda: _size(process_set_id), name, "Size")


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
