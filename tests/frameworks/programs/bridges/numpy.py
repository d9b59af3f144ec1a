"""NumPy's arrays: what all adapters share, without a framework."""

from types import SimpleNamespace

import numpy as np

from bridges.bridge import Bridge as Base
from ringleader.adapters import array_operations, basics, object_exchange, process_sets, reductions
from ringleader.adapters.numpy_adapter import ALIGNMENT, NumpyAdapter
from ringleader.engine.exceptions import HorovodInternalError

ARGUMENTS = ("op", "prescale_factor", "postscale_factor", "root_rank", "splits")


def init(process_sets=None):
    basics.begin_session(NumpyAdapter, None, process_sets)


class Bridge(Base):
    hvd = SimpleNamespace(
        **(vars(basics) | vars(object_exchange) | vars(process_sets) | vars(reductions) | {"init": init})
    )
    operations = Base.operations | {"allreduce_", "broadcast_"}
    mismatch = HorovodInternalError

    def tensor(self, array):
        return array

    def call(self, operation, given, *, name=None, process_set=process_sets.global_process_set, **words):
        kind = getattr(array_operations, operation.removeprefix("grouped_").upper())
        more = [words[key] for key in ARGUMENTS if key in words]
        if operation.startswith("grouped_"):
            return kind.run_group(given, name, process_set, *more)
        if operation == "alltoall":
            result, counts = kind.run(given, name, process_set, *(more or [None]))
            return (result, np.array(counts, "int32")) if more else result
        result = kind.run(given, name, process_set, *more)
        assert result.ctypes.data % ALIGNMENT == 0 or not result.size
        return result

    def in_place(self, operation, array, *, process_set=process_sets.global_process_set, **words):
        kind = getattr(array_operations, operation.upper() + "IN_PLACE")
        assert kind.run(array, None, process_set, *words.values()) is array
        return array
