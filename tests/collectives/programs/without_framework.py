"""The adapter of NumPy alone: what all adapters share is enough for the rest, and loads no framework."""

import sys
from array import array

import numpy as np

from ringleader.collectives.operations import Work
from ringleader.common.basics import begin_session, rank, shutdown, size
from ringleader.common.handles import poll, synchronize
from ringleader.common.join_barrier import barrier, join
from ringleader.common.numpy_adapter import NumpyAdapter, dtype_name
from ringleader.common.object_exchange import any_rank, gather_objects, sum_numbers
from ringleader.common.process_sets import add_process_set, global_process_set, group_of
from ringleader.common.reductions import Average, Max, Sum, handle_average_backwards_compatibility
from ringleader.common.submit_operation import Operation, signature_for


def describe(group, one, name, serial, op):
    signature, digest = signature_for("allreduce", dtype_name(one), one.shape, "cpu", op, 0, 1.0, 1.0, "")
    return Work(signature, digest, name=name, serial=serial, array=one, out=np.empty_like(one))


ALLREDUCE = Operation("Allreduce", describe)

begin_session(NumpyAdapter, None, "dynamic")
RANK, SIZE = rank(), size()
TOTAL = SIZE * (SIZE + 1) / 2
for count in (1, 100, 20_000, 3_000_000):
    mine = np.full((count,), RANK + 1.0)
    assert (ALLREDUCE.run(mine, None, global_process_set, Sum) == TOTAL).all()
    assert (ALLREDUCE.run(mine, "named", global_process_set, Average) == TOTAL / SIZE).all()
    handles = [ALLREDUCE.begin(mine, f"h{at}", global_process_set, Max) for at in range(9)]
    assert all((synchronize(handle) == SIZE).all() and poll(handle) for handle in handles)
    both = ALLREDUCE.run_group([mine, mine.astype("int32")], None, global_process_set, Sum)
    assert [one.dtype for one in both] == ["float64", "int32"] and all((one == TOTAL).all() for one in both)
if SIZE > 1:
    alone = add_process_set([0])
    assert RANK or (ALLREDUCE.run(np.ones(3), None, alone, Sum) == 1).all()
engine = group_of(global_process_set, "").engine
region = engine.register(100_000, "float32")
region.mine[:] = RANK
barrier()
assert sum_numbers(engine, array("q", [RANK, 1]), "numbers") == [TOTAL - SIZE, SIZE]
assert any_rank(engine, RANK == SIZE - 1, "any") and not any_rank(engine, False, "none")
assert gather_objects(engine, {"rank": RANK, "long": "x" * RANK}, "objects") == [
    {"rank": one, "long": "x" * one} for one in range(SIZE)
]
assert handle_average_backwards_compatibility(None, None) is Average
assert 0 <= join() < SIZE
shutdown()
assert "torch" not in sys.modules
print("rank done", flush=True)
