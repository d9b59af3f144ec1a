"""What a TensorFlow training script imports: ``import ringleader.tensorflow as hvd``.

Names, signatures and meanings are Horovod's; the names are gathered in `mpi_ops`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ringleader.adapters.framework_check import check_framework

check_framework("tensorflow", "TensorFlow", "pip install tensorflow")

from ringleader.adapters.util import gpu_available as gpu_available
from ringleader.tensorflow import functions, mpi_ops
from ringleader.tensorflow.compression import Compression as Compression
from ringleader.tensorflow.distributed_optimizer import DistributedOptimizer as DistributedOptimizer
from ringleader.tensorflow.functions import *
from ringleader.tensorflow.gradient_tape import DistributedGradientTape as DistributedGradientTape
from ringleader.tensorflow.gradient_tape import (
    PartialDistributedGradientTape as PartialDistributedGradientTape,
)
from ringleader.tensorflow.mpi_ops import *
from ringleader.tensorflow.util import _cache as _cache
from ringleader.tensorflow.util import _executing_eagerly as _executing_eagerly
from ringleader.tensorflow.util import _make_subgraph as _make_subgraph
from ringleader.tensorflow.util import refs_to_vars as refs_to_vars
from ringleader.tensorflow.util import vars_to_refs as vars_to_refs

if not TYPE_CHECKING:  # which goes by the imports above
    __all__ = sorted(
        {"Compression", "DistributedGradientTape", "DistributedOptimizer", "PartialDistributedGradientTape"}
        | {"SyncBatchNormalization", "gpu_available", "refs_to_vars", "vars_to_refs"}
        | {*mpi_ops.__all__, *functions.__all__}
    )


def __getattr__(name: str) -> Any:
    """Import Keras' layer, and ``elastic``, where they are asked for: Keras takes seconds to import."""
    if name == "SyncBatchNormalization":
        return import_module("ringleader.tensorflow.sync_batch_norm").SyncBatchNormalization
    if name == "elastic":
        return import_module("ringleader.tensorflow.elastic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
