"""Every operation of an adapter compared with NumPy: ``contract.py BRIDGE``, a module of `bridges`."""

import sys
from importlib import import_module

import numpy as np
from refusals import raises

bridge = import_module(f"bridges.{sys.argv[1]}").Bridge()
hvd = bridge.hvd
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
hvd.shutdown()
assert not hvd.is_initialized()
PARTS = [range(SIZE // 2), range(SIZE // 2, SIZE)] if SIZE > 1 else []
sets = [hvd.ProcessSet(ranks) for ranks in PARTS]
hvd.init(process_sets=sets)
assert hvd.is_initialized() and (hvd.rank(), hvd.size()) == (RANK, SIZE)
EVERYBODY = range(SIZE)
ROWS = (2 * SIZE + 1, 3)
SHAPES = ((), (7,), (5, 0), (70_001,), (2, 3, 4), ROWS)
HALF = {"float16": 1e-3, "bfloat16": 1e-2}
COMBINE = {hvd.Sum: np.add, hvd.Min: np.minimum, hvd.Max: np.maximum, hvd.Product: np.multiply}


def named(dtype):
    if dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def brought(rank, shape, dtype):
    """What a rank brings: small integers, so that sums are exact in every type."""
    lowest = 0 if dtype.startswith(("u", "b")) and dtype != "bfloat16" else -3
    return np.random.default_rng([rank, *shape]).integers(lowest, 4, shape).astype(named(dtype))


def reduced(arrays, op):
    """Reduce in the arrays' own type, in the order of ranks; a mean of integers is cut toward zero."""
    if op == hvd.Average:
        wide = sum(array.astype("float64") for array in arrays) / len(arrays)
        return (wide if arrays[0].dtype.kind not in "iu" else np.trunc(wide)).astype(arrays[0].dtype)
    result = arrays[0].copy()
    for one in arrays[1:]:
        result = COMBINE[op](result, one).astype(result.dtype)
    return result


def check(tensor, want, *what, close=0.0):
    got = tensor if isinstance(tensor, np.ndarray | np.generic) else bridge.array(tensor)
    where = (sys.argv[1], *what, got.shape, want.shape, str(got.dtype), str(want.dtype))
    assert got.shape == want.shape and got.dtype == want.dtype, where
    if close and got.dtype.kind not in "iub":
        near = np.isclose(got.astype("float64"), want.astype("float64"), rtol=close, atol=close)
        assert near.all(), (*where, got, want)
    else:
        assert (got == want).all(), (*where, got, want)


def has(operation):
    return operation in bridge.operations


def check_reductions(dtype, shape, **words):
    """``words`` may name a process set."""
    ranks = words["process_set"].ranks if words else EVERYBODY
    arrays = [brought(rank, shape, dtype) for rank in ranks]
    mine = bridge.tensor(brought(RANK, shape, dtype))
    ops = [hvd.Sum, hvd.Min, hvd.Max, hvd.Product, *([] if dtype == "bool" else [hvd.Average])]
    for op in ops:
        want, what, close = reduced(arrays, op), (dtype, shape, op), HALF.get(dtype, 1e-6)
        close = close if op == hvd.Average else 0.0
        check(bridge.call("allreduce", mine, op=op, **words), want, "allreduce", *what, close=close)
        if has("allreduce_"):
            own = brought(RANK, shape, dtype)
            check(bridge.in_place("allreduce_", own, op=op, **words), want, "allreduce_", *what, close=close)
        if shape and op in (hvd.Sum, hvd.Average) and has("reducescatter"):
            rows = np.array_split(want, len(ranks))[list(ranks).index(RANK)]
            got = bridge.call("reducescatter", mine, op=op, **words)
            check(got, rows, "reducescatter", *what, close=close)


def check_movements(dtype, shape, **words):
    ranks = list(words["process_set"].ranks if words else EVERYBODY)
    arrays = [brought(rank, shape, dtype) for rank in ranks]
    mine = bridge.tensor(brought(RANK, shape, dtype))
    for root in ranks if shape == ROWS else ranks[-1:]:
        theirs, words_of_root = arrays[ranks.index(root)], {"root_rank": root, **words}
        check(bridge.call("broadcast", mine, **words_of_root), theirs, "broadcast", dtype, shape, root)
        if has("broadcast_"):
            got = bridge.in_place("broadcast_", brought(RANK, shape, dtype), **words_of_root)
            check(got, theirs, "broadcast_", dtype, shape)
    if not shape:
        return
    check(bridge.call("allgather", mine, **words), np.concatenate(arrays), "allgather", dtype, shape)
    uneven = [brought(rank, (rank, *shape[1:]), dtype) for rank in ranks]
    got = bridge.call("allgather", bridge.tensor(brought(RANK, (RANK, *shape[1:]), dtype)), **words)
    check(got, np.concatenate(uneven), "allgather of uneven rows", dtype, shape)
    if has("alltoall"):
        check_alltoall(dtype, shape[1:], ranks, words)


def check_alltoall(dtype, row, ranks, words):
    size, at = len(ranks), ranks.index(RANK)
    full = [brought(rank, (size * 2, *row), dtype) for rank in ranks]
    want = np.concatenate([one[2 * at : 2 * at + 2] for one in full])
    check(bridge.call("alltoall", bridge.tensor(full[at]), **words), want, "alltoall", dtype, row)
    # Each rank sends its own number of rows, and one more to the first; the last row goes nowhere.
    splits = {rank: [rank + (to == 0) for to in range(size)] for rank in ranks}
    full = [brought(rank, (sum(splits[rank]) + 1, *row), dtype) for rank in ranks]
    parts = []
    for one, rank in zip(full, ranks, strict=True):
        start = sum(splits[rank][:at])
        parts.append(one[start : start + splits[rank][at]])
    mine = bridge.tensor(np.array(splits[RANK], "int32"))
    rows, counts = bridge.call("alltoall", bridge.tensor(full[at]), splits=mine, **words)
    check(rows, np.concatenate(parts), "alltoall with splits", dtype, row)
    check(counts, np.array([len(part) for part in parts], "int32"), "received splits", dtype)


def check_groups(**words):
    """Types and shapes may differ within a group."""
    ranks = list(words["process_set"].ranks if words else EVERYBODY)
    kinds = [("float32", ROWS), ("int32", (4,)), ("float64", ()), ("float32", (0, 2))]
    kinds = [kind for kind in kinds if kind[0] in bridge.dtypes]
    for kept, operation in ((kinds, "grouped_allreduce"), *((kinds[:2], one) for one in SCATTERED)):
        if not has(operation):
            continue
        mine = [bridge.tensor(brought(RANK, shape, dtype)) for dtype, shape in kept]
        more = {} if operation == "grouped_allgather" else {"op": hvd.Sum}
        results = bridge.call(operation, mine, **more, **words)
        assert len(results) == len(mine)
        for result, (dtype, shape) in zip(results, kept, strict=True):
            arrays = [brought(rank, shape, dtype) for rank in ranks]
            want = np.concatenate(arrays) if operation == "grouped_allgather" else reduced(arrays, hvd.Sum)
            if operation == "grouped_reducescatter":
                want = np.array_split(want, len(ranks))[ranks.index(RANK)]
            check(result, want, operation, dtype, shape)


SCATTERED = ("grouped_allgather", "grouped_reducescatter")


def check_factors():
    arrays = [brought(rank, ROWS, "float32") for rank in EVERYBODY]
    mine = bridge.tensor(arrays[RANK])
    for op in (hvd.Sum, hvd.Average):
        words = {"op": op, "prescale_factor": 0.5, "postscale_factor": 4.0}
        check(bridge.call("allreduce", mine, **words), 2 * reduced(arrays, op), "factors", op, close=1e-6)
    whole = bridge.tensor(np.full(4, 7, "int32"))
    got = bridge.call("allreduce", whole, op=hvd.Sum, prescale_factor=0.5)
    check(got, np.full(4, 3 * SIZE, "int32"), "integers are cut before they are summed")


def check_layouts():
    """Arrays that are no block of memory."""
    arrays = [brought(rank, (4, 6), "float32") for rank in EVERYBODY]
    for view in (lambda one: one.T, lambda one: one[:, ::2], lambda one: one[::-1]):
        got = bridge.call("allreduce", bridge.tensor(view(arrays[RANK])), op=hvd.Sum)
        check(got, view(reduced(arrays, hvd.Sum)), "layout")


def check_gradients(**words):
    """The gradient of each operation is one too: of a sum the sum, of a gather the mean of one's rows."""
    ranks = list(words["process_set"].ranks if words else EVERYBODY)
    size, at = len(ranks), ranks.index(RANK)
    rows = 2 * size
    mine = brought(RANK, (rows, 3), "float32")
    weights = [brought(rank + 50, (rows, 3), "float32") for rank in ranks]

    def gradient(name, weight, **more):
        return bridge.gradient(lambda x: bridge.call(name, x, **more, **words), mine, weight)

    total, mean = reduced(weights, hvd.Sum), sum(weights) / size
    factors = {"prescale_factor": 1.5, "postscale_factor": 2.0}
    for op, want, more in ((hvd.Sum, total, {}), (hvd.Average, mean, {}), (hvd.Sum, 3 * total, factors)):
        got = gradient("allreduce", weights[at], op=op, **more)
        check(got, want, "gradient of allreduce", op, close=1e-5)
    for root in ranks:
        want = mean if root == RANK else np.zeros_like(mean)
        check(gradient("broadcast", weights[at], root_rank=root), want, "gradient of broadcast", close=1e-5)
    long = [brought(rank + 70, (rows * size, 3), "float32") for rank in ranks]
    want = (sum(long) / size)[at * rows : (at + 1) * rows]
    check(gradient("allgather", long[at]), want, "gradient of allgather", close=1e-5)
    if has("alltoall"):
        want = np.concatenate([one[2 * at : 2 * at + 2] for one in weights])
        check(gradient("alltoall", weights[at]), want, "gradient of alltoall")
    if has("reducescatter"):
        short = [one[:2] for one in weights]
        want = size * np.concatenate(short)
        check(gradient("reducescatter", short[at], op=hvd.Sum), want, "gradient of reducescatter", close=1e-5)


for dtype in bridge.dtypes:
    check_reductions(dtype, ROWS)
    check_movements(dtype, ROWS)
for shape in SHAPES[:-1]:
    check_reductions("float32", shape)
    check_movements("int32", shape)
check_groups()
check_factors()
check_layouts()
if has("gradient"):
    check_gradients()
if sets:
    mine = {"process_set": sets[RANK >= SIZE // 2]}
    check_reductions("float32", ROWS, **mine)
    check_movements("int32", ROWS, **mine)
    check_groups(**mine)
    if has("gradient"):
        check_gradients(**mine)
if has("broadcast_object"):
    for root in EVERYBODY:
        assert hvd.broadcast_object({"rank": RANK, "long": "x" * 1000 * RANK}, root_rank=root)["rank"] == root
if has("allgather_object"):
    assert hvd.allgather_object({"rank": RANK}) == [{"rank": rank} for rank in EVERYBODY]
if SIZE > 1:
    for shape, dtype in (((3 + RANK,), "float32"), ((3,), "float32" if RANK else "int32")):
        odd = bridge.tensor(np.ones(shape, dtype))
        raises(bridge.mismatch, "Mismatched", bridge.call, "allreduce", odd, op=hvd.Sum, name="differs")
after = bridge.call("allreduce", bridge.tensor(np.ones(3, "float32")), op=hvd.Sum)
check(after, np.full(3, SIZE, "float32"), "after")
if has("join"):
    assert 0 <= bridge.join() < SIZE
hvd.shutdown()
print("rank done", flush=True)
