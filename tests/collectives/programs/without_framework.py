"""The adapter of NumPy alone: what all adapters share is enough for the rest, and loads no framework."""

import sys
from array import array

import numpy as np

from ringleader.adapters.array_operations import (
    ALLGATHER,
    ALLREDUCE,
    ALLREDUCE_IN_PLACE,
    ALLTOALL,
    BROADCAST,
    BROADCAST_IN_PLACE,
    REDUCESCATTER,
)
from ringleader.adapters.basics import barrier, begin_session, join, rank, shutdown, size
from ringleader.adapters.handles import poll, synchronize
from ringleader.adapters.numpy_adapter import ALIGNMENT, NumpyAdapter
from ringleader.adapters.numpy_arithmetic import dtype_named
from ringleader.adapters.object_exchange import (
    allgather_object,
    any_rank,
    broadcast_object,
    gather_objects,
    sum_numbers,
)
from ringleader.adapters.process_sets import add_process_set, global_process_set, group_of
from ringleader.adapters.reductions import (
    Average,
    Max,
    Min,
    Product,
    Sum,
    handle_average_backwards_compatibility,
)
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.reduction_kernels import ITEMSIZE

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


def brought(rank, shape, dtype):
    """What a rank brings: small integers, so that sums are exact in every type."""
    drawn = np.random.default_rng([rank, *shape]).integers(0 if dtype.startswith("u") else -3, 4, shape)
    return drawn.astype(dtype_named(dtype))


def check(got, want, *what):
    assert got.shape == want.shape and (got == want).all(), (what, got, want)
    assert got.__array_interface__["data"][0] % ALIGNMENT == 0 or not got.size, what


def fold(arrays, combine):
    """Reduce in the arrays' own type, in the order of ranks."""
    result = arrays[0].copy()
    for one in arrays[1:]:
        combine(result, one, out=result)
    return result


EVERY, ROWS = global_process_set, (2 * SIZE + 1, 3)
for dtype in ITEMSIZE:
    for shape in ((), (7,), (5, 0), (70_001,), ROWS):
        all_ranks = [brought(one, shape, dtype) for one in range(SIZE)]
        mine = all_ranks[RANK]
        for op, combine in ((Sum, np.add), (Min, np.minimum), (Max, np.maximum), (Product, np.multiply)):
            want = fold(all_ranks, combine)
            check(ALLREDUCE.run(mine, None, EVERY, op), want, "allreduce", dtype, shape, op)
            own = mine.copy()
            assert ALLREDUCE_IN_PLACE.run(own, None, EVERY, op) is own and (own == want).all()
        check(BROADCAST.run(mine, None, EVERY, SIZE - 1), all_ranks[-1], "broadcast", dtype, shape)
        own = mine.copy()
        assert BROADCAST_IN_PLACE.run(own, None, EVERY, 0) is own and (own == all_ranks[0]).all()
        if shape:
            check(ALLGATHER.run(mine, None, EVERY), np.concatenate(all_ranks), "allgather", dtype, shape)
            parts = np.array_split(fold(all_ranks, np.add), SIZE)
            check(REDUCESCATTER.run(mine, None, EVERY, Sum), parts[RANK], "reducescatter", dtype, shape)
    sides = [brought(one, (one + 1, 2), dtype) for one in range(SIZE)]
    check(ALLGATHER.run(sides[RANK], "uneven", EVERY), np.concatenate(sides), "uneven rows", dtype)
    strided = np.stack([sides[RANK], sides[RANK]], axis=2)[:, :, 1]
    check(ALLGATHER.run(strided, "strided", EVERY), np.concatenate(sides), "strided", dtype)
    full = [brought(one, (SIZE * (one + 1), 2), dtype) for one in range(SIZE)]
    splits = [RANK + 1] * SIZE
    rows, counts = ALLTOALL.run(full[RANK], None, EVERY, splits)
    want = [theirs[(one + 1) * RANK : (one + 1) * (RANK + 1)] for one, theirs in enumerate(full)]
    check(rows, np.concatenate(want), "alltoall", dtype)
    assert counts == tuple(one + 1 for one in range(SIZE))
scaled = ALLREDUCE.run(np.full(4, 6, "int32"), None, EVERY, Average, 0.5, 1.0)
assert scaled.tolist() == [3] * 4, scaled


def raises(kind, words, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)


raises(ValueError, "without dimensions", ALLGATHER.run, np.ones(()), None, EVERY)
raises(ValueError, "entries for", ALLTOALL.run, np.ones(3), None, EVERY, [1] * (SIZE + 1))
raises(ValueError, "have no average", ALLREDUCE.run, np.ones(3, bool), None, EVERY, Average)
raises(ValueError, "is not supported", ALLREDUCE.run, np.array(["a"]), None, EVERY, Sum)
raises(ValueError, "contiguous", ALLREDUCE_IN_PLACE.run, np.ones((4, 4))[:, 1], None, EVERY, Sum)
raises(ValueError, "root rank", BROADCAST.run, np.ones(3), None, EVERY, SIZE)
raises(HorovodInternalError, "Average and Sum", REDUCESCATTER.run, np.ones(3), None, EVERY, Max)
if SIZE > 1:
    raises(HorovodInternalError, "allreduce", ALLREDUCE.run, np.ones(3 + RANK), "differs", EVERY, Sum)
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
assert allgather_object({"rank": RANK}) == [{"rank": one} for one in range(SIZE)]
assert broadcast_object(["root"] if RANK == SIZE - 1 else None, SIZE - 1) == ["root"]
unpicklable = (at for at in "generator") if RANK == 0 else None
raises(HorovodInternalError if RANK else TypeError, "pickle", broadcast_object, unpicklable)
raises(HorovodInternalError if RANK else TypeError, "pickle", allgather_object, unpicklable)
assert handle_average_backwards_compatibility(None, None) is Average
assert 0 <= join() < SIZE
shutdown()
assert "torch" not in sys.modules
print("rank done", flush=True)
