"""NumPy's arrays without a framework, and PyTorch in the same process. argv: which of them comes first."""

import sys
from array import array

import numpy as np

from ringleader.adapters import array_operations as arrays
from ringleader.adapters.basics import barrier, begin_session, rank, shutdown, size
from ringleader.adapters.numpy_adapter import NumpyAdapter
from ringleader.adapters.object_exchange import (
    allgather_object,
    any_rank,
    broadcast_object,
    gather_objects,
    sum_numbers,
)
from ringleader.adapters.process_sets import add_process_set, global_process_set, group_of
from ringleader.adapters.reductions import Average, Max, Sum
from ringleader.engine.exceptions import HorovodInternalError

EVERY = global_process_set


def raises(kind, words, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)


def without_a_framework():
    """What NumPy's arrays are refused, memory of the engine's, and what the ranks tell each other."""
    me, ranks = rank(), size()
    raises(ValueError, "without dimensions", arrays.ALLGATHER.run, np.ones(()), None, EVERY)
    raises(ValueError, "entries for", arrays.ALLTOALL.run, np.ones(3), None, EVERY, [1] * (ranks + 1))
    raises(ValueError, "have no average", arrays.ALLREDUCE.run, np.ones(3, bool), None, EVERY, Average)
    raises(ValueError, "is not supported", arrays.ALLREDUCE.run, np.array(["a"]), None, EVERY, Sum)
    raises(ValueError, "contiguous", arrays.ALLREDUCE_IN_PLACE.run, np.ones((4, 4))[:, 1], None, EVERY, Sum)
    raises(ValueError, "root rank", arrays.BROADCAST.run, np.ones(3), None, EVERY, ranks)
    raises(HorovodInternalError, "Average and Sum", arrays.REDUCESCATTER.run, np.ones(3), None, EVERY, Max)
    engine = group_of(EVERY, "").engine
    engine.register(100_000, "float32").mine[:] = me
    barrier()
    total = ranks * (ranks + 1) // 2
    assert sum_numbers(engine, array("q", [me, 1]), "numbers") == [total - ranks, ranks]
    assert any_rank(engine, me == ranks - 1, "any") and not any_rank(engine, False, "none")
    assert gather_objects(engine, "x" * me, "objects") == ["x" * one for one in range(ranks)]
    unpicklable = (at for at in "generator") if me == 0 else None
    for call in (broadcast_object, allgather_object):
        raises(HorovodInternalError if me else TypeError, "pickle", call, unpicklable)
    assert "torch" not in sys.modules


def reduced(name=None):
    """Reduce an array of NumPy's that cannot be written to."""
    mine = np.full(3, rank() + 1, np.float32)
    mine.flags.writeable = False
    got = arrays.ALLREDUCE.run(mine, name, EVERY, Sum)
    assert type(got) is np.ndarray and (got == size() * (size() + 1) // 2).all()


first = sys.argv[1]
if first == "numpy":
    begin_session(NumpyAdapter, None, "dynamic")
    without_a_framework()
    sets = [add_process_set([one]) for one in range(size())] if size() > 1 else [EVERY]

import torch  # noqa: E402

import ringleader.torch as hvd  # noqa: E402

if first == "numpy":
    raises(ValueError, "ringleader.torch.init()", hvd.allreduce, torch.ones(3))
    hvd.init()
    one = sets[rank()]
    assert one.process_set_id == (rank() + 1 if size() > 1 else 0)
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum, process_set=one).sum() == 3
else:
    hvd.init(process_sets=[[0]])
begin_session(NumpyAdapter, None, None)
for dtype in (torch.float32, torch.bfloat16, torch.int64):
    got = hvd.allreduce(torch.full((1000,), rank() + 1).to(dtype), op=hvd.Sum)
    assert (got == size() * (size() + 1) // 2).all()
reduced()
hvd.allreduce_async(torch.ones(3), name="a")
arrays.ALLREDUCE.begin(np.ones(3, np.float32), "b", EVERY, hvd.Sum)
if rank() == 0:  # the ranks differ in the framework, not in what they mean
    hvd.allreduce(torch.ones(3), op=hvd.Sum, name="mixed")
else:
    reduced("mixed")
shutdown()
print("rank done")
