"""Everything that Horovod's module of this name offers; the modules below `ringleader.torch` hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.adapters import names
from ringleader.adapters.basics import HorovodBasics
from ringleader.adapters.basics import barrier as barrier
from ringleader.adapters.basics import join as join
from ringleader.adapters.basics import shutdown as shutdown
from ringleader.adapters.handles import poll as poll
from ringleader.adapters.handles import synchronize as synchronize
from ringleader.adapters.names import *
from ringleader.adapters.util import nccl_built as nccl_built
from ringleader.torch import basics, differentiable, operations
from ringleader.torch.basics import *
from ringleader.torch.compression import Compression as Compression
from ringleader.torch.differentiable import *
from ringleader.torch.operations import *

HorovodGroupedAllreduce = differentiable.HorovodAllreduce
HorovodGroupedAllgather = differentiable.HorovodAllgather
HorovodGroupedReducescatter = differentiable.HorovodReducescatter
_basics = HorovodBasics(__file__)
"""Horovod's object of ``rank``, ``size`` and so on, which scripts take from here."""

if not TYPE_CHECKING:  # which goes by the imports above
    __all__ = sorted(
        {"Compression", "HorovodGroupedAllgather", "HorovodGroupedAllreduce", "HorovodGroupedReducescatter"}
        | {"barrier", "join", "nccl_built", "poll", "shutdown", "synchronize"}
        | {name for one in (names, basics, differentiable, operations) for name in one.__all__}
    )
