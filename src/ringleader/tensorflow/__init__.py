"""What a TensorFlow training script imports: ``import ringleader.tensorflow as hvd``.

Names, signatures and meanings are Horovod's.
"""

from __future__ import annotations

from typing import Any

from ringleader.common.framework_check import check_framework

check_framework("tensorflow", "TensorFlow", "pip install tensorflow")

from ringleader.common.exceptions import HorovodInternalError
from ringleader.common.util import gpu_available
from ringleader.tensorflow.compression import Compression
from ringleader.tensorflow.distributed_optimizer import DistributedOptimizer
from ringleader.tensorflow.functions import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from ringleader.tensorflow.global_variables import (
    BroadcastGlobalVariablesHook,
    broadcast_global_variables,
)
from ringleader.tensorflow.gradient_tape import DistributedGradientTape, PartialDistributedGradientTape
from ringleader.tensorflow.mpi_ops import (
    Adasum,
    Average,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    add_process_set,
    allgather,
    allreduce,
    alltoall,
    broadcast,
    broadcast_,
    ccl_built,
    check_num_rank_power_of_2,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    handle_average_backwards_compatibility,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_rank_op,
    local_size,
    local_size_op,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    process_set_included_op,
    rank,
    rank_op,
    reducescatter,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    size_op,
    start_timeline,
    stop_timeline,
)
from ringleader.tensorflow.util import _cache as _cache
from ringleader.tensorflow.util import _executing_eagerly as _executing_eagerly
from ringleader.tensorflow.util import _make_subgraph as _make_subgraph
from ringleader.tensorflow.util import refs_to_vars, vars_to_refs

__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "refs_to_vars",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
    "vars_to_refs",
]


def __getattr__(name: str) -> Any:
    """Import Keras' layer, and ``elastic``, where they are asked for: Keras takes seconds to import."""
    if name == "SyncBatchNormalization":
        from ringleader.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    if name == "elastic":
        from importlib import import_module

        return import_module("ringleader.tensorflow.elastic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
