"""Two frameworks in one process: NumPy's arrays in a session of PyTorch, and PyTorch that comes second."""

import sys

import ml_dtypes
import numpy as np
import torch

import ringleader.torch as hvd
from ringleader.adapters.array_operations import (
    ALLGATHER,
    ALLREDUCE,
    ALLREDUCE_IN_PLACE,
    ALLTOALL,
    BROADCAST,
    BROADCAST_IN_PLACE,
    REDUCESCATTER,
)
from ringleader.adapters.basics import begin_session, rank, shutdown, size
from ringleader.adapters.numpy_adapter import NumpyAdapter
from ringleader.adapters.process_sets import add_process_set, global_process_set
from ringleader.engine.exceptions import HorovodInternalError


def check_numpy() -> None:
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint16, np.uint8):
        for shape in ((), (0,), (5, 3), (40_000,)):
            mine = np.full(shape, rank() + 1, dtype)
            mine.flags.writeable = False
            total = size() * (size() + 1) // 2
            got = ALLREDUCE.run(mine, None, global_process_set, hvd.Sum)
            assert (
                type(got) is np.ndarray and got.dtype == dtype and got.shape == shape and (got == total).all()
            )
            own = mine.copy()
            assert ALLREDUCE_IN_PLACE.run(own, None, global_process_set, hvd.Max) is own
            assert (own == size()).all()
            assert (BROADCAST.run(mine, None, global_process_set, 0) == 1).all()
            own = mine.copy()
            assert BROADCAST_IN_PLACE.run(own, None, global_process_set, 0) is own and (own == 1).all()
    rows = np.full((size() * 2, 3), rank(), ml_dtypes.bfloat16)
    assert ALLGATHER.run(rows, None, global_process_set).shape == (size() * size() * 2, 3)
    got, counts = ALLTOALL.run(rows, None, global_process_set, None)
    assert (
        got[:, 0].tolist() == [float(one) for one in range(size()) for _ in range(2)]
        and counts == (2,) * size()
    )
    got = REDUCESCATTER.run(rows, None, global_process_set, hvd.Sum)
    assert got.dtype == ml_dtypes.bfloat16 and (got == sum(range(size()))).all()


def check_torch() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        got = hvd.allreduce(torch.full((1000,), rank() + 1).to(dtype), op=hvd.Sum)
        assert (got == size() * (size() + 1) // 2).all()


first = sys.argv[1]
if first == "numpy":
    begin_session(NumpyAdapter, None, "dynamic")
    sets = [add_process_set([one]) for one in range(size())] if size() > 1 else [global_process_set]
    check_numpy()
    try:
        hvd.allreduce(torch.ones(3))
    except ValueError as error:
        assert "ringleader.torch.init()" in str(error)
    else:
        raise SystemExit("PyTorch without its init")
    hvd.init()  # PyTorch comes second
    one = sets[rank()]
    assert one.process_set_id == (rank() + 1 if size() > 1 else 0)
    if one.included():
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum, process_set=one).sum() == 3
    begin_session(NumpyAdapter, None, None)
else:
    hvd.init(process_sets=[[0]])
    begin_session(NumpyAdapter, None, None)
check_torch()
check_numpy()
hvd.allreduce_async(torch.ones(3), name="a")
ALLREDUCE.begin(np.ones(3, np.float32), "b", global_process_set, hvd.Sum)
try:  # the ranks differ in the framework, not in what they mean
    if rank() == 0:
        got = hvd.allreduce(torch.ones(3), op=hvd.Sum, name="mixed").numpy()
    else:
        got = ALLREDUCE.run(np.ones(3, np.float32), "mixed", global_process_set, hvd.Sum)
    assert (got == size()).all()
except HorovodInternalError as error:
    raise SystemExit(f"mixed: {error}")
shutdown()
print("rank done")
