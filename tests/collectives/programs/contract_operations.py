"""Operations in process sets, in groups, sparse and with Adasum, their gradients and their errors, against
NumPy. argv: the transport that must be in use."""

import sys
import warnings

import numpy as np
import torch
from refusals import refused

import ringleader.torch as hvd
from ringleader.torch.basics import session

torch.sparse.check_sparse_tensor_invariants.enable()
TRANSPORT = sys.argv[1]
SETS = [hvd.global_process_set]
if TRANSPORT != "loopback":
    pairs = {2: [[0], [1]], 3: [[0, 2], [1]], 4: [[0, 2], [1, 3]]}
    world = int(sys.argv[2])
    SETS += [hvd.ProcessSet(ranks) for ranks in pairs[world]]
hvd.init(process_sets=SETS[1:])
RANK, SIZE = hvd.rank(), hvd.size()
assert session().engine.transport.name == TRANSPORT, session().engine.transport.name

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64,
    torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip
CHECKS = 0


def members(group):
    return list(range(SIZE)) if group is hvd.global_process_set else group.ranks


def values(rank, shape, dtype, salt=0):
    """What a rank brings: small integers, so that sums are exact in every type."""
    generator = np.random.default_rng([rank, salt, len(shape), *shape])
    low, high = (0, 2) if dtype == torch.bool else (0 if "uint" in str(dtype) else -3, 4)
    return torch.tensor(generator.integers(low, high, shape)).to(dtype)


def wide(tensor):
    return tensor.double().numpy() if tensor.dtype != torch.bool else tensor.numpy()


def check(got, want, *what):
    global CHECKS
    CHECKS += 1
    assert tuple(got.shape) == np.shape(want), (what, got.shape, np.shape(want))
    assert np.array_equal(wide(got.detach()), want), (what, got, want)


def total(arrays, dtype):
    return np.any(arrays, axis=0) if dtype == torch.bool else np.sum(arrays, axis=0)


def splits_of(place, size):
    return [(place * 2 + other) % 4 for other in range(size)]


def alltoalls(group, dtype):
    ranks = members(group)
    me, size = ranks.index(RANK), len(ranks)
    mine = values(RANK, (2 * size, 3), dtype)
    parts = [wide(values(rank, (2 * size, 3), dtype))[2 * me : 2 * me + 2] for rank in ranks]
    check(hvd.alltoall(mine, process_set=group), np.concatenate(parts), "alltoall", dtype)
    got, counts = hvd.synchronize(hvd.alltoall_async(mine, process_set=group))
    check(got, np.concatenate(parts), "alltoall_async", dtype)
    assert counts.tolist() == [2] * size and counts.dtype == torch.int32
    # Rows that are more than the splits name stay where they are.
    everybody = [
        (splits_of(place, size), values(rank, (4 * size + 1, 2), dtype)) for place, rank in enumerate(ranks)
    ]
    splits, tensor = everybody[me]
    strided = torch.stack([tensor, tensor], dim=2)[:, :, 1]
    got, counts = hvd.alltoall(strided, torch.tensor(splits, dtype=torch.int32), "splits", group)
    rows = [wide(other)[sum(theirs[:me]) :][: theirs[me]] for theirs, other in everybody]
    check(got, np.concatenate(rows), "alltoall with splits", dtype)
    assert counts.tolist() == [theirs[me] for theirs, _other in everybody]
    none = torch.zeros(size, dtype=torch.int32)
    got, counts = hvd.alltoall(mine, none, process_set=group)
    check(got, np.zeros((0, 3)), "nothing", dtype)
    flat = [wide(values(rank, (size,), dtype))[me] for rank in ranks]
    check(hvd.alltoall(values(RANK, (size,), dtype), process_set=group), np.array(flat), "numbers", dtype)


def scatters(group, dtype):
    ranks = members(group)
    me, size = ranks.index(RANK), len(ranks)
    for shape in [(2 * size + 1, 3), (size - 1, 2), (size, 2), (1, 2), (0, 4), (70_001,)]:
        arrays = [wide(values(rank, shape, dtype)) for rank in ranks]
        want = np.array_split(total(arrays, dtype), size)[me]
        got = hvd.reducescatter(values(RANK, shape, dtype), op=hvd.Sum, process_set=group)
        check(got, want, "reducescatter", dtype, shape)
    if dtype == torch.bool:
        return
    shape = (3 * size + 2, 2)
    arrays = [wide(values(rank, shape, dtype)) for rank in ranks]
    want = np.array_split(total(arrays, dtype) * 3, size)[me]
    handle = hvd.reducescatter_async(
        values(RANK, shape, dtype), op=hvd.Sum, process_set=group, prescale_factor=3.0
    )
    check(hvd.synchronize(handle), want, "prescaled", dtype)
    if size in (1, 2, 4) or not dtype.is_floating_point:
        mean = total(arrays, dtype) / size
        want = np.array_split(mean if dtype.is_floating_point else np.trunc(mean), size)[me]
        check(hvd.reducescatter(values(RANK, shape, dtype), process_set=group), want, "mean", dtype)


def groups(group, dtype):
    ranks = members(group)
    me, size = ranks.index(RANK), len(ranks)
    shapes = [(3,), (2, 5), (0,), (1,)]

    def bring(rank):
        return [values(rank, shape, dtype, salt) for salt, shape in enumerate(shapes)]

    columns = list(zip(*([wide(one) for one in bring(rank)] for rank in ranks), strict=True))
    sums = [total(column, dtype) for column in columns]
    joined = [np.concatenate(column) for column in columns]
    words = {"process_set": group}
    for got, want in zip(hvd.grouped_allreduce(bring(RANK), op=hvd.Sum, **words), sums, strict=True):
        check(got, want, "grouped_allreduce", dtype)
    mine = bring(RANK)
    for got, own, want in zip(hvd.grouped_allreduce_(mine, op=hvd.Sum, **words), mine, sums, strict=True):
        assert got is own
        check(got, want, "grouped_allreduce_", dtype)
    mine = bring(RANK)
    handles = [
        hvd.grouped_allreduce_async(bring(RANK), op=hvd.Sum, name="one", **words),
        hvd.grouped_allreduce_async_(mine, op=hvd.Sum, name="other", **words),
        hvd.grouped_allgather_async(bring(RANK), name="gather", **words),
        hvd.grouped_reducescatter_async(bring(RANK), name="scatter", op=hvd.Sum, **words),
    ]
    wanted = [sums, sums, joined, [np.array_split(one, size)[me] for one in sums]]
    for handle, wants in reversed(list(zip(handles, wanted, strict=True))):
        results = hvd.synchronize(handle)
        assert isinstance(results, tuple) and hvd.poll(handle) and hvd.synchronize(handle) is None
        for got, want in zip(results, wants, strict=True):
            check(got, want, "grouped async", dtype)
    for got, want in zip(hvd.grouped_allgather(bring(RANK), **words), joined, strict=True):
        check(got, want, "grouped_allgather", dtype)
    scattered = hvd.grouped_reducescatter(bring(RANK), op=hvd.Sum, **words)
    for got, want in zip(scattered, wanted[3], strict=True):
        check(got, want, "grouped_reducescatter", dtype)


def rest(group, dtype):
    ranks = members(group)
    for root in ranks:
        got = hvd.broadcast(values(RANK, (3, 2), dtype), root, process_set=group)
        check(got, wide(values(root, (3, 2), dtype)), "broadcast", dtype, root)
    rows = [values(rank, (rank, 2), dtype) for rank in range(SIZE)]
    handle = hvd.allgather_async(rows[RANK], "rows", group)
    check(hvd.synchronize(handle), np.concatenate([wide(rows[rank]) for rank in ranks]), "rows", dtype)
    arrays = [wide(values(rank, (7,), dtype)) for rank in ranks]
    got = hvd.allreduce(values(RANK, (7,), dtype), op=hvd.Sum, process_set=group)
    check(got, total(arrays, dtype), "sum")


def large(group):
    """Beyond a slot of the window, and beyond a piece between hosts."""
    ranks, words = members(group), {"process_set": group}
    me, size = ranks.index(RANK), len(ranks)
    rows = [values(rank, (150_001 + rank, 2), torch.float32) for rank in ranks]
    check(hvd.allgather(rows[me], **words), np.concatenate([wide(one) for one in rows]), "large allgather")
    splits = [[70_001 * (place + to + 1) for to in range(size)] for place in range(size)]
    full = [wide(values(rank, (sum(splits[at]), 3), torch.float32)) for at, rank in enumerate(ranks)]
    parts = [one[sum(theirs[:me]) :][: theirs[me]] for one, theirs in zip(full, splits, strict=True)]
    mine = torch.from_numpy(full[me]).float()
    got, _counts = hvd.alltoall(mine, torch.tensor(splits[me], dtype=torch.int32), **words)
    check(got, np.concatenate(parts), "large alltoall")
    for dtype in (torch.float32, torch.bfloat16):
        shapes = [(400_001, 2), (3,), (300_000,)]
        sums = [total([wide(values(rank, shape, dtype)) for rank in ranks], dtype) for shape in shapes]
        got = hvd.reducescatter(values(RANK, shapes[0], dtype), op=hvd.Sum, **words)
        check(got, np.array_split(sums[0], size)[me], "large reducescatter", dtype)
        results = hvd.grouped_allreduce([values(RANK, one, dtype) for one in shapes], op=hvd.Sum, **words)
        for got, want in zip(results, sums, strict=True):
            check(got, want, "large grouped_allreduce", dtype)
    got = hvd.broadcast(values(RANK, (500_009,), torch.float32), ranks[-1], **words)
    check(got, wide(values(ranks[-1], (500_009,), torch.float32)), "large broadcast")


def gradients(group):
    """The gradient of every operation, alone and in a group."""
    ranks = members(group)
    me, size = ranks.index(RANK), len(ranks)
    weights = [torch.arange(6.0).view(3, 2) + rank for rank in range(SIZE)]
    words = {"process_set": group}

    def leaf(rows=3):
        return torch.full((rows, 2), 2.0, dtype=torch.float64, requires_grad=True)

    def gradient(leaves, outputs, factors):
        sum((out * factor).sum() for out, factor in zip(outputs, factors, strict=True)).backward()
        return [one.grad for one in leaves]

    mean = np.mean([wide(weights[rank]) for rank in ranks], axis=0)
    for op, want in ((hvd.Sum, mean * size), (hvd.Average, mean)):
        for scale in (1.0, 0.5):
            x, more = leaf(), {"op": op, "postscale_factor": scale, **words}
            got = gradient([x], [hvd.allreduce(x, **more)], [weights[RANK]])[0]
            check(got, want * scale, "allreduce", op)
            x, y = leaf(), leaf()
            whole = torch.ones(2, dtype=torch.int32)
            outs = hvd.grouped_allreduce([x, whole, y], **{**more, "op": op})
            factors = [weights[RANK], torch.zeros(2), weights[RANK] * 2]
            got = gradient([x, y], outs, factors)
            check(got[0], want * scale, "grouped_allreduce", op)
            check(got[1], want * scale * 2, "grouped_allreduce", op)
    x = leaf()
    got = gradient([x], [hvd.broadcast(x, ranks[-1], **words)], [weights[RANK]])[0]
    check(got, mean if ranks[-1] == RANK else 0 * mean, "broadcast")
    counts = [rank + 1 for rank in ranks]
    start = sum(counts[:me])
    factor = [torch.arange(2.0 * sum(counts)).view(-1, 2) * (rank + 1) for rank in range(SIZE)]
    want = np.mean([wide(factor[rank]) for rank in ranks], axis=0)[start : start + counts[me]]
    x, y, z = leaf(counts[me]), leaf(counts[me]), leaf(counts[me])
    check(gradient([x], [hvd.allgather(x, **words)], [factor[RANK]])[0], want, "allgather")
    got = gradient([y, z], hvd.grouped_allgather([y, z], **words), [factor[RANK], factor[RANK] * 3])
    check(got[0], want, "grouped_allgather")
    check(got[1], want * 3, "grouped_allgather")
    # Row j of what goes to a rank returns with the factor that this rank has for it; the last row stays.
    x = leaf(2 * size + 1)
    out, counts = hvd.alltoall(x, torch.tensor([2] * size, dtype=torch.int32), **words)
    assert counts.tolist() == [2] * size
    got = gradient([x], [out], [torch.full((2 * size, 2), float(RANK + 1))])[0]
    want = np.concatenate([np.full((2, 2), rank + 1.0) for rank in ranks] + [np.zeros((1, 2))])
    check(got, want, "alltoall")
    rows = [size + 1] if size > 1 else [1]
    mine = np.array_split(np.arange(rows[0]), size)[me]
    want = np.concatenate([np.full((len(part), 2), rank + 1.0) for rank, part in
                           zip(ranks, np.array_split(np.arange(rows[0]), size), strict=True)])  # fmt: skip
    for op, times in ((hvd.Sum, size), (hvd.Average, 1)):
        x, y, z = leaf(rows[0]), leaf(rows[0]), leaf(rows[0])
        own = torch.full((len(mine), 2), RANK + 1.0)
        check(gradient([x], [hvd.reducescatter(x, op=op, **words)], [own])[0], want * times, "reducescatter")
        outs = hvd.grouped_reducescatter([y, z], op=op, prescale_factor=0.5, **words)
        got = gradient([y, z], outs, [own, own * 2])
        check(got[0], want * times * 0.5, "grouped_reducescatter")
        check(got[1], want * times, "grouped_reducescatter")
    # What needs no gradient gets none, and is not put on the graph.
    assert not hvd.allreduce(torch.ones(2), **words).requires_grad
    with torch.no_grad():
        assert not hvd.alltoall(torch.ones(size, requires_grad=True), **words).requires_grad
    x = torch.ones(2, requires_grad=True)
    assert hvd.allreduce_(x, op=hvd.Sum, **words) is x and x.grad is None
    check(x, np.full(2, float(size)), "a leaf in place")


def sparse(group):
    ranks = members(group)

    def bring(rank, dtype):
        spans = torch.tensor([[rank, 1, rank], [0, 3, 0]])
        return torch.sparse_coo_tensor(spans, torch.tensor([1, 2, 4 * rank]).to(dtype), (SIZE + 2, 4))

    for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
        for op in (hvd.Sum, hvd.Average):
            wait = hvd.sparse_allreduce_async(bring(RANK, dtype), "sparse", op, process_set=group)
            want = sum(wide(bring(rank, dtype).to_dense()) for rank in ranks)
            if op is hvd.Average:
                want = want / len(ranks) if dtype.is_floating_point else np.trunc(want / len(ranks))
            got = wait().to_dense()
            if op is hvd.Average and dtype.is_floating_point:
                assert np.allclose(wide(got), want, rtol=4 * torch.finfo(dtype).eps), (dtype, got, want)
            else:
                check(got, want, "sparse", dtype, op)
    empty = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0, 3), (5, 3))
    rows = torch.sparse_coo_tensor(torch.tensor([[4]]), torch.ones(1, 3), (5, 3))
    got = hvd.sparse_allreduce_async(rows if ranks[0] == RANK else empty, None, hvd.Sum, group)()
    check(got.to_dense(), wide(rows.to_dense()), "sparse rows")
    if len(ranks) > 1:
        other = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (4 + RANK,))
        wait = hvd.sparse_allreduce_async(other, "sizes", hvd.Sum, group)
        refused(hvd.HorovodInternalError, wait, "Mismatched")
    refused(ValueError, lambda: hvd.sparse_allreduce_async(torch.ones(2), "dense", hvd.Sum))
    refused(ValueError, lambda: hvd.sparse_allreduce_async(bring(RANK, torch.float32), "max", hvd.Max))


def adasum():
    """The pair rule, up the tree; the same bits on every rank."""
    if SIZE & (SIZE - 1):
        refused(NotImplementedError, lambda: hvd.allreduce(torch.ones(3), op=hvd.Adasum))
        return

    def bring(rank, dtype, count):
        generator = np.random.default_rng(rank)
        return torch.tensor(generator.normal(size=count) + (np.arange(count) % 3)).to(dtype)

    def pair(a, b):
        dot = a @ b
        of_a, of_b = (1 - dot / (2 * (one @ one)) if one.any() else 1 for one in (a, b))
        return of_a * a + of_b * b

    for dtype, tolerance, count in (
        (torch.float64, 1e-13, 1001),
        (torch.float32, 1e-5, 1001),
        (torch.float32, 1e-5, 400_001),
        (torch.float16, 2e-2, 1001),
        (torch.bfloat16, 1e-1, 1001),
    ):
        level = [wide(bring(rank, dtype, count)) for rank in range(SIZE)]
        while len(level) > 1:
            level = [pair(a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
        got = hvd.allreduce(bring(RANK, dtype, count), op=hvd.Adasum)
        assert np.allclose(wide(got), level[0], rtol=tolerance, atol=tolerance), (got, level[0])
        bits = hvd.allgather_object(got.view(torch.uint8).numpy().tobytes())
        assert len(set(bits)) == 1
        inplace = bring(RANK, dtype, count)
        assert hvd.allreduce_(inplace, op=hvd.Adasum, prescale_factor=2.0, postscale_factor=0.5) is inplace
        assert np.allclose(wide(inplace), level[0], rtol=tolerance, atol=tolerance)
    check(hvd.allreduce(torch.zeros(5), op=hvd.Adasum), np.zeros(5), "zeros")
    check(hvd.allreduce(torch.full((4,), 3.0), op=hvd.Adasum), np.full(4, 3.0), "equal vectors")
    axis = torch.zeros(SIZE)
    axis[RANK] = RANK + 1.0
    check(hvd.allreduce(axis, op=hvd.Adasum), np.arange(1.0, SIZE + 1), "orthogonal vectors")
    check(hvd.allreduce(torch.zeros(0), op=hvd.Adasum), np.zeros(0), "nothing")
    refused(ValueError, lambda: hvd.allreduce(torch.ones(3, dtype=torch.int32), op=hvd.Adasum))


def errors_of_a_set(group):
    ones = torch.ones(2 * SIZE, 2)
    if RANK in group.ranks:
        outside = next(rank for rank in range(SIZE) if rank not in group.ranks)
        refused(ValueError, lambda: hvd.broadcast(ones, outside, process_set=group), "root")
        refused(NotImplementedError, lambda: hvd.allreduce(ones, op=hvd.Adasum, process_set=group))
    else:
        refused(ValueError, lambda: hvd.allreduce(ones, process_set=group), "not a member")
        refused(ValueError, lambda: hvd.alltoall(ones, process_set=group), "not a member")


def errors():
    ones = torch.ones(2 * SIZE, 2)

    def splits(numbers, dtype=torch.int32):
        return lambda: hvd.alltoall(ones, torch.tensor(numbers, dtype=dtype))

    refused(ValueError, splits([[1] * SIZE]), "1-D")
    refused(ValueError, splits([1] * SIZE, torch.int64), "int32")
    refused(ValueError, splits([1] * (SIZE + 1)), "entries")
    refused(ValueError, splits([3] * SIZE), "do not fit")
    refused(ValueError, splits([-1] + [1] * (SIZE - 1)), "do not fit")
    if SIZE > 1:
        refused(ValueError, lambda: hvd.alltoall(torch.ones(SIZE + 1)), "multiple")
    refused(ValueError, lambda: hvd.alltoall(torch.tensor(1.0)))
    refused(ValueError, lambda: hvd.allgather(torch.tensor(1.0)))
    refused(ValueError, lambda: hvd.reducescatter(torch.tensor(1.0)))
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        refused(hvd.HorovodInternalError, lambda op=op: hvd.reducescatter(ones, op=op))
        refused(hvd.HorovodInternalError, lambda op=op: hvd.grouped_reducescatter([ones], op=op))
    refused(ValueError, lambda: hvd.broadcast(ones, SIZE), "root")
    refused(ValueError, lambda: hvd.allreduce(ones, average=True, op=hvd.Sum), "supersedes")
    refused(ValueError, lambda: hvd.allreduce(ones.to(torch.complex64)), "not supported")
    refused(ValueError, lambda: hvd.allreduce(ones.to_sparse()), "layout")
    refused(ValueError, lambda: hvd.allreduce(torch.ones(2, device="meta")), "meta")
    refused(ValueError, lambda: hvd.allreduce(torch.ones(2, dtype=torch.bool)), "average")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(hvd.allreduce(torch.ones(2), average=False), np.full(2, float(SIZE)), "average=False")
    assert [one.category for one in caught] == [DeprecationWarning] and caught[0].filename == __file__
    for group in SETS[1:]:
        errors_of_a_set(group)
    # All failed calls counted, on every rank alike, so that calls without a name still find each other.
    check(hvd.allreduce(torch.ones(2), op=hvd.Sum), np.full(2, float(SIZE)), "after errors")
    if SIZE == 1:
        return
    mistakes = [
        lambda: hvd.alltoall(torch.ones(SIZE, 2 + RANK), name="row"),
        lambda: hvd.reducescatter(torch.ones(SIZE + RANK), name="shape"),
        lambda: hvd.reducescatter(torch.ones(SIZE), name="op", op=hvd.Sum if RANK else hvd.Average),
        lambda: hvd.grouped_allreduce([torch.ones(2), torch.ones(2 + RANK), torch.ones(2)], name="second"),
        lambda: hvd.allreduce(torch.ones(4), name="adasum", op=hvd.Sum if RANK else hvd.Max),
    ]
    for mistake in mistakes:
        refused(hvd.HorovodInternalError, mistake, "Mismatched")
        check(hvd.allreduce(torch.ones(2), op=hvd.Sum), np.full(2, float(SIZE)), "after a mismatch")


def names():
    """One name twice on a rank is refused before anything is asked for; members of groups count too."""
    one = None
    if RANK == 0:
        one = hvd.grouped_allreduce_async([torch.ones(2), torch.ones(3)], name="twice", op=hvd.Sum)
        if SIZE > 1:
            more = ([torch.ones(2), torch.ones(3)], None, "twice", hvd.Sum)
            refused(ValueError, lambda: hvd.grouped_allreduce_async(*more), "pending")
    hvd.barrier()
    if one is None:
        one = hvd.grouped_allreduce_async([torch.ones(2), torch.ones(3)], name="twice", op=hvd.Sum)
    for got, count in zip(hvd.synchronize(one), (2, 3), strict=True):
        check(got, np.full(count, float(SIZE)), "twice")
    text = "ä 'quoted' / \n name\udc80"
    check(hvd.allreduce(torch.ones(1), name=text, op=hvd.Sum), np.array([float(SIZE)]), "any text")
    assert hvd.grouped_allreduce([]) == [] and hvd.synchronize(hvd.grouped_allgather_async([])) == ()
    assert hvd.synchronize(10**9) is None and hvd.poll(10**9)


def objects():
    for group in [one for one in SETS if RANK in members(one)]:
        ranks = members(group)
        assert hvd.allgather_object({RANK: "x" * RANK}, process_set=group) == [{r: "x" * r} for r in ranks]
        got = hvd.broadcast_object({"a": 1} if ranks[-1] == RANK else None, ranks[-1], "object", group)
        assert got == {"a": 1}
    error = TypeError if RANK == 0 else hvd.HorovodInternalError
    broken = Unpicklable() if RANK == 0 else 1
    refused(error, lambda: hvd.broadcast_object(broken, 0))
    refused(error, lambda: hvd.allgather_object(broken))
    model = torch.nn.Linear(3, 2)
    model.register_buffer("scalar", torch.tensor(RANK))
    with torch.no_grad():
        model.weight.fill_(RANK + 1.0)
    hvd.broadcast_parameters(model.state_dict(), SIZE - 1)
    check(model.weight, np.full((2, 3), float(SIZE)), "broadcast_parameters")
    check(model.scalar, np.array(SIZE - 1), "a buffer")
    hvd.broadcast_parameters([("weight", model.weight)], 0)
    hvd.broadcast_parameters(model.parameters(), 0)
    for wrong in (torch.ones(3), "text", None, 7):
        refused(ValueError, lambda wrong=wrong: hvd.broadcast_parameters(wrong, 0), "invalid params")


class Unpicklable:
    def __reduce__(self):
        raise TypeError("not this one")


for one in SETS:
    if RANK not in members(one):
        continue
    for kind in DTYPES if one is hvd.global_process_set else DTYPES[::3]:
        for part in (alltoalls, scatters, groups, rest):
            part(one, kind)
    large(one)
    gradients(one)
    sparse(one)
hvd.barrier()
# From here on all ranks do the same, so that operations without a name have the same numbers again.
hvd.shutdown()
hvd.init(process_sets=SETS[1:])
adasum()
errors()
objects()
names()
hvd.barrier()
hvd.shutdown()
assert CHECKS > 300
print("rank done", flush=True)
