"""Every operation, element type and reduction against NumPy. argv: the transport that must be in use."""

import sys
from fractions import Fraction

import numpy as np
import torch

import ringleader.torch as hvd
from ringleader.torch.basics import session

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
assert session().engine.transport.name == sys.argv[1], session().engine.transport.name
UNCOUPLED = sys.argv[1] == "uncoupled"

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64,
    torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip
SHAPES = [(1,), (), (0,), (3, 0), (17,), (4, 5, 6), (70_001,)]
REDUCE = {hvd.Sum: np.add, hvd.Min: np.minimum, hvd.Max: np.maximum, hvd.Product: np.multiply}
CHECKS = 0


def values(rank, shape, dtype):
    """The tensor that a rank brings: small integers, so that sums are exact in every type."""
    generator = np.random.default_rng([rank, len(shape), int(np.prod(shape))])
    return torch.tensor(generator.integers(0, 2 if dtype == torch.bool else 4, shape)).to(dtype)


def as_numpy(tensor):
    wide = {torch.bfloat16: torch.float32, torch.float16: torch.float32}
    return tensor.to(wide.get(tensor.dtype, tensor.dtype)).numpy()


def everybody(shape, dtype):
    return [as_numpy(values(rank, shape, dtype)) for rank in range(SIZE)]


def check(got, want, *what):
    global CHECKS
    CHECKS += 1
    assert tuple(got.shape) == tuple(np.shape(want)), (what, got.shape, np.shape(want))
    assert np.array_equal(as_numpy(got), want), (what, got, want)


def wanted(arrays, op, dtype):
    if UNCOUPLED:
        return arrays[RANK]
    if dtype == torch.bool:
        return np.any(arrays, axis=0) if op in (hvd.Sum, hvd.Max) else np.all(arrays, axis=0)
    result = arrays[0]
    for one in arrays[1:]:
        result = REDUCE[op](result, one)
    return np.asarray(result).astype(arrays[0].dtype)


for dtype in DTYPES:
    for shape in SHAPES:
        mine, all_ranks = values(RANK, shape, dtype), everybody(shape, dtype)
        for op in REDUCE:
            if shape == (70_001,) and op not in (hvd.Sum, hvd.Max):
                continue
            want = wanted(all_ranks, op, dtype)
            check(hvd.allreduce(mine, op=op), want, "allreduce", dtype, shape, op)
            check(mine, all_ranks[RANK], "input untouched")
            inplace = mine.clone()
            assert hvd.allreduce_(inplace, op=op) is inplace
            check(inplace, want, "allreduce_", dtype, shape, op)
        handle = hvd.allreduce_async(mine, name="async", op=hvd.Sum)
        check(hvd.synchronize(handle), wanted(all_ranks, hvd.Sum, dtype), "async", dtype, shape)
        for root in range(SIZE):
            want = all_ranks[root]
            check(hvd.broadcast(mine, root), want, "broadcast", dtype, shape)
        copy = mine.clone()
        check(hvd.broadcast_(copy, SIZE - 1), all_ranks[SIZE - 1], "broadcast_")
        if shape:
            gathered = [all_ranks[RANK]] * SIZE if UNCOUPLED else all_ranks
            check(hvd.allgather(mine), np.concatenate(gathered), "allgather", dtype, shape)
    if not UNCOUPLED:
        rows = [values(rank, (rank, 3), dtype) for rank in range(SIZE)]
        check(hvd.allgather(rows[RANK]), np.concatenate([as_numpy(one) for one in rows]), "differing rows")

# A NaN of any rank is everybody's, by every algorithm; the other elements are right.
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    for count in (1, 64, 5000, 70_001):
        for holder in range(SIZE):
            mine = torch.full((count,), RANK + 1.0, dtype=dtype)
            if holder == RANK:
                mine[:: max(1, count // 7)] = float("nan")
            lost = torch.isnan(mine) if UNCOUPLED else torch.arange(count) % max(1, count // 7) == 0
            for op, best in ((hvd.Min, 1.0), (hvd.Max, float(SIZE))):
                registered = hvd.registered_empty(count, dtype=dtype)
                registered.copy_(mine)
                for got in (hvd.allreduce(mine, op=op), hvd.allreduce_(registered, op=op)):
                    CHECKS += 1
                    what = ("NaN", dtype, count, holder, op)
                    assert torch.equal(torch.isnan(got), lost), what
                    assert UNCOUPLED or (got[~lost] == best).all(), what

# Averages: integers are cut toward zero, half types are exact for these values.
for dtype in (
    torch.int8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
):
    numbers = torch.arange(-2, 3).to(dtype) * (RANK + 1)
    total = (
        np.arange(-2, 3)
        * (1 if not UNCOUPLED else RANK + 1)
        * (sum(range(1, SIZE + 1)) if not UNCOUPLED else 1)
    )
    want = total / SIZE if not UNCOUPLED else total
    got = hvd.allreduce(numbers)
    if dtype.is_floating_point:
        assert np.allclose(as_numpy(got), want, rtol=8e-3 if dtype == torch.bfloat16 else 1e-3), (
            dtype,
            got,
            want,
        )
    else:
        check(got, np.trunc(want).astype(as_numpy(numbers).dtype), "average", dtype)

# Sums up to each type's limits divide exactly, unsigned ones too; a factor saturates.
for dtype in (one for one in DTYPES if not one.is_floating_point and one != torch.bool):
    most, least = torch.iinfo(dtype).max, torch.iinfo(dtype).min
    numbers = [most // SIZE, least // SIZE + (least < 0), min(49, most // SIZE), 0]
    sums = [number * (1 if UNCOUPLED else SIZE) for number in numbers]
    mine = torch.tensor(numbers, dtype=torch.uint64 if dtype == torch.uint64 else torch.int64).to(dtype)
    assert hvd.allreduce(mine).tolist() == numbers, ("average", dtype)
    for by in (Fraction(1, 49), Fraction(10_000_001, 10_000_000), Fraction(-3)):
        want = [min(max(int(one * by), least), most) for one in sums]
        got = hvd.allreduce(mine, op=hvd.Sum, postscale_factor=float(by)).tolist()
        assert UNCOUPLED or got == want, ("factor", dtype, by, got, want)

if not UNCOUPLED:
    # Scales: before the sum per rank and cast back, after it once.
    x = torch.tensor([5, -5, 7], dtype=torch.int32) + RANK
    per_rank = [np.trunc((np.array([5, -5, 7]) + rank) * 0.5) for rank in range(SIZE)]
    got = hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    check(got, (np.sum(per_rank, axis=0) * 3).astype(np.int32), "scales of integers")
    y = torch.full((1000,), RANK + 1.0)
    got = hvd.allreduce(y, op=hvd.Average, prescale_factor=2.0, postscale_factor=0.25)
    assert torch.allclose(got, torch.full((1000,), (SIZE + 1) / 2 * 0.5))

    # Larger than a slot, with an odd rest, in place and not; not contiguous; a wrong number would be far off.
    big = torch.arange(1_300_003, dtype=torch.float32) % 1000 * (RANK + 1)
    want = as_numpy(torch.arange(1_300_003, dtype=torch.float32) % 1000) * sum(range(1, SIZE + 1))
    check(hvd.allreduce(big, op=hvd.Sum), want, "big")
    check(hvd.allreduce_(big.half().clamp_(0, 1), op=hvd.Sum), np.minimum(want, SIZE), "big half")
    grid = torch.ones(6, 4)[:, ::2] * RANK
    hvd.allreduce_(grid, op=hvd.Sum)
    check(grid, np.full((6, 2), sum(range(SIZE)), dtype=np.float32), "not contiguous")
    hvd.synchronize(hvd.broadcast_async_(grid.t(), 0))

    # Any order of names, and results of the right operation.
    order = np.random.default_rng(RANK).permutation(40)
    handles = {
        int(i): hvd.allreduce_async(torch.full((i + 1,), float(i)), name=f"n{i}", op=hvd.Sum) for i in order
    }
    assert any(not hvd.poll(handle) for handle in handles.values()) or SIZE == 1
    for i in range(40):
        check(hvd.synchronize(handles[i]), np.full(i + 1, i * SIZE, dtype=np.float32), "order", i)
    assert hvd.synchronize(handles[0]) is None

    # Mistakes end with the right error everywhere, and the next operation is right.
    mistakes = [
        lambda: hvd.allreduce(torch.ones(3 + RANK), name="shape"),
        lambda: hvd.allreduce(torch.ones(3, dtype=torch.float32 if RANK else torch.float64), name="type"),
        lambda: hvd.allreduce(torch.ones(3), name="op", op=hvd.Sum if RANK else hvd.Max),
        lambda: hvd.broadcast(torch.ones(3), min(RANK, 1), name="root"),
        lambda: hvd.allreduce(torch.ones(3), name="scale", prescale_factor=1.0 + RANK),
        lambda: hvd.allgather(torch.ones(2, 3 + RANK), name="row"),
    ]  # fmt: skip
    for mistake in mistakes if SIZE > 1 else []:
        try:
            mistake()
        except hvd.HorovodInternalError as error:
            assert "Mismatched" in str(error), error
        else:
            raise AssertionError("a mismatch went through")
        check(
            hvd.allreduce(torch.full((2,), RANK + 1.0), op=hvd.Sum),
            np.full(2, sum(range(1, SIZE + 1)), np.float32),
        )

objects = hvd.allgather_object({"rank": RANK, "text": "ü" * RANK})
assert [one["rank"] for one in objects] == ([RANK] * SIZE if UNCOUPLED else list(range(SIZE)))
# Independent ranks too get what another one has read: they could not continue without it.
got = hvd.broadcast_object({"from": RANK} if RANK == SIZE - 1 else None, root_rank=SIZE - 1)
assert got == {"from": SIZE - 1}
hvd.barrier()
hvd.shutdown()
assert CHECKS > 100
print("rank done", flush=True)
