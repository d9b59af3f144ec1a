"""The names that every framework's adapter offers alike, of Horovod's: ``from …names import *`` in each.

What differs by framework, as ``init``, ``join`` and the operations, is in the adapters' ``mpi_ops``.
"""

from __future__ import annotations

from ringleader.adapters.basics import (
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
    size,
    start_timeline,
    stop_timeline,
)
from ringleader.adapters.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from ringleader.adapters.reductions import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    handle_average_backwards_compatibility,
)
from ringleader.adapters.util import ccl_built, ddl_built, gloo_built, mpi_built
from ringleader.engine.exceptions import HorovodInternalError

__all__ = [
    "Adasum",
    "Average",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "handle_average_backwards_compatibility",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "rank",
    "remove_process_set",
    "size",
    "start_timeline",
    "stop_timeline",
]
