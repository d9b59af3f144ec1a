"""What a JAX training script imports: ``import ringleader.jax as hvd``.

Names and meanings are those of `ringleader.torch`; what takes a tensor there takes a tree of arrays here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.adapters.framework_check import check_framework

check_framework("jax", "JAX", "pip install jax optax")

from ringleader.jax import mpi_ops
from ringleader.jax.mpi_ops import *
from ringleader.jax.optimizer import DistributedOptimizer as DistributedOptimizer

if not TYPE_CHECKING:  # which goes by the imports above
    __all__ = sorted({"DistributedOptimizer", *mpi_ops.__all__})
