"""What a Keras training script imports: ``import ringleader.keras as hvd``.

For Keras 3 on TensorFlow, PyTorch or JAX, and for Keras 2 (tf_keras). Names, signatures and meanings are
Horovod's.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.common.basics import (
    cross_rank,
    cross_size,
    gloo_enabled,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_enabled,
    mpi_threads_supported,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from ringleader.common.join_barrier import barrier, join
from ringleader.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from ringleader.common.reductions import Adasum, Average, Max, Min, Product, Sum
from ringleader.common.util import ccl_built, ddl_built, gloo_built, mpi_built, nccl_built
from ringleader.keras import callbacks
from ringleader.keras.basics import cuda_built, init, rocm_built
from ringleader.keras.compression import Compression
from ringleader.keras.model_state import broadcast_global_variables, broadcast_variables
from ringleader.keras.optimizer.distributed_optimizer import (
    DistributedOptimizer,
    PartialDistributedOptimizer,
)
from ringleader.keras.saved_models import load_model
from ringleader.keras.values import allgather, allreduce, broadcast, reducescatter

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


def __getattr__(name: str) -> Any:
    """Import ``elastic`` when a script asks for it: other scripts start without it."""
    if name == "elastic":
        return import_module("ringleader.keras.elastic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
