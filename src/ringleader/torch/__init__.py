"""What a PyTorch training script imports: ``import ringleader.torch as hvd``.

Names, signatures and meanings are Horovod's; the names are gathered in `mpi_ops`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ringleader.adapters.framework_check import OLDEST, check_framework

check_framework("torch", "PyTorch", f"pip install 'torch>={OLDEST['torch']}'", least=OLDEST["torch"])

from ringleader.torch import functions, mpi_ops, registered_memory
from ringleader.torch.functions import *
from ringleader.torch.mpi_ops import *
from ringleader.torch.optimizer.distributed_optimizer import DistributedOptimizer as DistributedOptimizer
from ringleader.torch.registered_memory import *
from ringleader.torch.sync_batch_norm import SyncBatchNorm as SyncBatchNorm

if TYPE_CHECKING:
    from ringleader.torch import elastic as elastic
else:
    __all__ = sorted(
        {"DistributedOptimizer", "SyncBatchNorm"}
        | {name for one in (mpi_ops, functions, registered_memory) for name in one.__all__}
    )


def __getattr__(name: str) -> Any:
    """Import ``elastic`` when a script asks for it: other scripts start without it."""
    if name == "elastic":
        return import_module("ringleader.torch.elastic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
