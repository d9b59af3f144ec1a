"""What an MXNet training script imports: ``import ringleader.mxnet as hvd``.

Names, signatures and meanings are Horovod's; the names are gathered in `mpi_ops`. For MXNet 1.9 on CPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.adapters.framework_check import check_framework

check_framework("mxnet", "MXNet", "docs/guides/mxnet.md has the versions that work")

from ringleader.mxnet import functions, mpi_ops
from ringleader.mxnet.compression import Compression as Compression
from ringleader.mxnet.distributed_optimizer import DistributedOptimizer as DistributedOptimizer
from ringleader.mxnet.distributed_trainer import DistributedTrainer as DistributedTrainer
from ringleader.mxnet.functions import *
from ringleader.mxnet.mpi_ops import *

if not TYPE_CHECKING:  # which goes by the imports above
    __all__ = sorted(
        {"Compression", "DistributedOptimizer", "DistributedTrainer", *mpi_ops.__all__, *functions.__all__}
    )
