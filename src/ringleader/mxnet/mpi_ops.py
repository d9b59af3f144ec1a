"""Everything that Horovod's module of this name offers; the modules beside this one hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.adapters import names
from ringleader.adapters.basics import HorovodBasics
from ringleader.adapters.basics import barrier as barrier
from ringleader.adapters.basics import init as init
from ringleader.adapters.basics import join as join
from ringleader.adapters.basics import shutdown as shutdown
from ringleader.adapters.names import *
from ringleader.adapters.util import nccl_built as nccl_built
from ringleader.mxnet import operations
from ringleader.mxnet.array_memory import ArgumentError as ArgumentError
from ringleader.mxnet.operations import *

_basics = HorovodBasics(__file__)
"""Horovod's object of ``rank``, ``size`` and so on, which scripts take from here."""


def cuda_built(verbose: bool = False) -> bool:
    """Return whether arrays of CUDA devices can be exchanged: MXNet's cannot."""
    return False


def rocm_built(verbose: bool = False) -> bool:
    """Return whether arrays of ROCm devices can be exchanged: MXNet's cannot."""
    return False


if not TYPE_CHECKING:  # which goes by the imports above
    __all__ = sorted(
        {"ArgumentError", "barrier", "cuda_built", "init", "join", "nccl_built", "rocm_built", "shutdown"}
        | {*names.__all__, *operations.__all__}
    )
