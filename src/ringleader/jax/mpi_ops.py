"""Everything of Horovod's module of this name that has a meaning in JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.adapters import names
from ringleader.adapters.basics import init as init
from ringleader.adapters.names import *
from ringleader.adapters.util import nccl_built as nccl_built
from ringleader.jax import operations
from ringleader.jax.compression import Compression as Compression
from ringleader.jax.operations import *

if not TYPE_CHECKING:  # which goes by the imports above
    __all__ = sorted({"Compression", "init", "nccl_built", *names.__all__, *operations.__all__})
