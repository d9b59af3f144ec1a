"""Everything that Horovod's module of this name offers; the modules below `ringleader.tensorflow` hold it."""

from __future__ import annotations

from ringleader.common.basics import (
    HorovodBasics,
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
from ringleader.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from ringleader.common.reductions import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    handle_average_backwards_compatibility,
)
from ringleader.common.util import ccl_built, ddl_built, gloo_built, mpi_built
from ringleader.common.util import num_rank_is_power_2 as check_num_rank_power_of_2
from ringleader.tensorflow.basics import cuda_built, init, nccl_built, rocm_built
from ringleader.tensorflow.ops.allgather import allgather, grouped_allgather
from ringleader.tensorflow.ops.allreduce import _allreduce as _allreduce
from ringleader.tensorflow.ops.allreduce import _grouped_allreduce as _grouped_allreduce
from ringleader.tensorflow.ops.allreduce import allreduce, grouped_allreduce
from ringleader.tensorflow.ops.alltoall import alltoall
from ringleader.tensorflow.ops.broadcast import broadcast, broadcast_
from ringleader.tensorflow.ops.rank_operations import (
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from ringleader.tensorflow.ops.reducescatter import grouped_reducescatter, reducescatter

_basics = HorovodBasics(__file__)
"""Horovod's object of ``rank``, ``size`` and so on, which scripts take from here."""

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_",
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
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
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]
