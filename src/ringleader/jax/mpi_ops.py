"""Everything of Horovod's module of this name that has a meaning in JAX."""

from __future__ import annotations

from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.common.basics import (
    cross_rank,
    cross_size,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_enabled,
    mpi_threads_supported,
    rank,
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
from ringleader.common.reductions import Adasum, Average, Max, Min, Product, Sum
from ringleader.common.util import ccl_built, ddl_built, gloo_built, mpi_built, nccl_built
from ringleader.jax.basics import barrier, join, shutdown
from ringleader.jax.compression import Compression
from ringleader.jax.ops.allgather import allgather
from ringleader.jax.ops.allreduce import allreduce
from ringleader.jax.ops.alltoall import alltoall
from ringleader.jax.ops.broadcast import broadcast
from ringleader.jax.ops.reducescatter import reducescatter

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
