"""Everything that Horovod's module of this name offers; the modules below `ringleader.tensorflow` hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.adapters import names
from ringleader.adapters.basics import HorovodBasics
from ringleader.adapters.basics import shutdown as shutdown
from ringleader.adapters.names import *
from ringleader.adapters.util import num_rank_is_power_2
from ringleader.tensorflow import basics, operations
from ringleader.tensorflow.basics import *
from ringleader.tensorflow.operations import *
from ringleader.tensorflow.operations import _allreduce as _allreduce
from ringleader.tensorflow.operations import _grouped_allreduce as _grouped_allreduce

check_num_rank_power_of_2 = num_rank_is_power_2
_basics = HorovodBasics(__file__)
"""Horovod's object of ``rank``, ``size`` and so on, which scripts take from here."""

if not TYPE_CHECKING:  # which goes by the imports above
    __all__ = sorted(
        {"check_num_rank_power_of_2", "shutdown", *names.__all__, *basics.__all__, *operations.__all__}
    )
