"""The names that every framework's adapter offers alike, of Horovod's: ``from …names import *`` in each.

What differs by framework, as ``init``, ``join`` and the operations, is in the adapters' ``mpi_ops``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.adapters.basics import cross_rank as cross_rank
from ringleader.adapters.basics import cross_size as cross_size
from ringleader.adapters.basics import gloo_enabled as gloo_enabled
from ringleader.adapters.basics import is_homogeneous as is_homogeneous
from ringleader.adapters.basics import is_initialized as is_initialized
from ringleader.adapters.basics import local_rank as local_rank
from ringleader.adapters.basics import local_size as local_size
from ringleader.adapters.basics import mpi_enabled as mpi_enabled
from ringleader.adapters.basics import mpi_threads_supported as mpi_threads_supported
from ringleader.adapters.basics import rank as rank
from ringleader.adapters.basics import size as size
from ringleader.adapters.basics import start_timeline as start_timeline
from ringleader.adapters.basics import stop_timeline as stop_timeline
from ringleader.adapters.process_sets import ProcessSet as ProcessSet
from ringleader.adapters.process_sets import add_process_set as add_process_set
from ringleader.adapters.process_sets import global_process_set as global_process_set
from ringleader.adapters.process_sets import remove_process_set as remove_process_set
from ringleader.adapters.reductions import Adasum as Adasum
from ringleader.adapters.reductions import Average as Average
from ringleader.adapters.reductions import Max as Max
from ringleader.adapters.reductions import Min as Min
from ringleader.adapters.reductions import Product as Product
from ringleader.adapters.reductions import Sum as Sum
from ringleader.adapters.reductions import (
    handle_average_backwards_compatibility as handle_average_backwards_compatibility,
)
from ringleader.adapters.util import ccl_built as ccl_built
from ringleader.adapters.util import ddl_built as ddl_built
from ringleader.adapters.util import gloo_built as gloo_built
from ringleader.adapters.util import mpi_built as mpi_built
from ringleader.engine.exceptions import HorovodInternalError as HorovodInternalError

if not TYPE_CHECKING:  # which goes by the imports above
    __all__ = sorted(
        {name for name in globals() if not name.startswith("_")} - {"TYPE_CHECKING", "annotations"}
    )
