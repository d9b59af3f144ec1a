"""What PyTorch's operations do beside the contract of all frameworks (tests/frameworks/programs).

Long arrays, NaN, the limits of integers, sparse tensors, Adasum, gradients of groups, errors, names, objects.
argv: the transport that must be in use.
"""

import sys
import warnings
from fractions import Fraction

import numpy as np
import torch
from refusals import refused

import ringleader.torch as hvd
from ringleader.torch.basics import session

torch.sparse.check_sparse_tensor_invariants.enable()
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
SETS = [hvd.global_process_set]
if SIZE > 1:
    SETS += [hvd.ProcessSet(range(at, SIZE, 2)) for at in (0, 1)]
hvd.shutdown()
hvd.init(process_sets=SETS[1:])
assert session().engine.transport.name == sys.argv[1], session().engine.transport.name
INTEGERS = [
    torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64
]  # fmt: skip
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def values(rank, shape, dtype=torch.float32):
    """What a rank brings: small integers, so that sums are exact in every type."""
    generator = np.random.default_rng([rank, len(shape), *shape])
    low, high = (0, 2) if dtype == torch.bool else (0 if "uint" in str(dtype) else -3, 4)
    return torch.tensor(generator.integers(low, high, shape)).to(dtype)


def wide(tensor):
    return tensor.double().numpy() if tensor.dtype != torch.bool else tensor.numpy()


def check(got, want, *what):
    assert tuple(got.shape) == np.shape(want), (what, got.shape, np.shape(want))
    assert np.array_equal(wide(got.detach()), want), (what, got, want)


def total(arrays):
    return np.any(arrays, axis=0) if arrays[0].dtype == bool else np.sum(arrays, axis=0)


def long_arrays(ranks, words):
    """Beyond a slot of the window, and beyond a piece between hosts."""
    me, size = ranks.index(RANK), len(ranks)
    rows = [values(rank, (150_001 + rank, 2)) for rank in ranks]
    check(hvd.allgather(rows[me], **words), np.concatenate([wide(one) for one in rows]), "allgather")
    splits = [[70_001 * (place + to + 1) for to in range(size)] for place in range(size)]
    full = [wide(values(rank, (sum(splits[at]), 3))) for at, rank in enumerate(ranks)]
    parts = [one[sum(theirs[:me]) :][: theirs[me]] for one, theirs in zip(full, splits, strict=True)]
    mine = torch.from_numpy(full[me]).float()
    got, _counts = hvd.alltoall(mine, torch.tensor(splits[me], dtype=torch.int32), **words)
    check(got, np.concatenate(parts), "alltoall")
    for dtype in (torch.float32, torch.bfloat16):
        shapes = [(400_001, 2), (3,), (300_000,)]
        sums = [total([wide(values(rank, shape, dtype)) for rank in ranks]) for shape in shapes]
        got = hvd.reducescatter(values(RANK, shapes[0], dtype), op=hvd.Sum, **words)
        check(got, np.array_split(sums[0], size)[me], "reducescatter", dtype)
        results = hvd.grouped_allreduce([values(RANK, one, dtype) for one in shapes], op=hvd.Sum, **words)
        for got, want in zip(results, sums, strict=True):
            check(got, want, "grouped_allreduce", dtype)
    for dtype in (torch.bool, *INTEGERS, *FLOATS):
        arrays = [wide(values(rank, (70_001,), dtype)) for rank in ranks]
        check(hvd.allreduce(values(RANK, (70_001,), dtype), op=hvd.Sum, **words), total(arrays), dtype)
        check(hvd.allreduce_(values(RANK, (70_001,), dtype), op=hvd.Max, **words), np.max(arrays, axis=0))
    got = hvd.broadcast(values(RANK, (500_009,)), ranks[-1], **words)
    check(got, wide(values(ranks[-1], (500_009,))), "broadcast")


def not_a_number():
    """A NaN of any rank is everybody's, by every algorithm; the other elements are right."""
    for dtype in FLOATS:
        for count in (1, 64, 5000, 70_001):
            lost = torch.arange(count) % max(1, count // 7) == 0
            for holder in range(SIZE):
                mine = torch.full((count,), RANK + 1.0, dtype=dtype)
                mine[lost] = float("nan") if holder == RANK else RANK + 1.0
                for op, best in ((hvd.Min, 1.0), (hvd.Max, float(SIZE))):
                    registered = hvd.registered_empty(count, dtype=dtype)
                    registered.copy_(mine)
                    for got in (hvd.allreduce(mine, op=op), hvd.allreduce_(registered, op=op)):
                        what = (dtype, count, holder, op)
                        assert torch.equal(torch.isnan(got), lost) and (got[~lost] == best).all(), what


def limits_of_integers():
    """Sums up to each type's limits divide exactly; a factor saturates; integers are cut before a sum."""
    for dtype in INTEGERS:
        most, least = torch.iinfo(dtype).max, torch.iinfo(dtype).min
        numbers = [most // SIZE, least // SIZE + (least < 0), min(49, most // SIZE), 0]
        mine = torch.tensor(numbers, dtype=torch.uint64 if dtype == torch.uint64 else torch.int64).to(dtype)
        assert hvd.allreduce(mine).tolist() == numbers, ("average", dtype)
        for by in (Fraction(1, 49), Fraction(10_000_001, 10_000_000), Fraction(-3)):
            want = [min(max(int(one * SIZE * by), least), most) for one in numbers]
            got = hvd.allreduce(mine, op=hvd.Sum, postscale_factor=float(by)).tolist()
            assert got == want, ("factor", dtype, by, got, want)
    per_rank = [np.trunc((np.array([5, -5, 7]) + rank) * 0.5) for rank in range(SIZE)]
    x = torch.tensor([5, -5, 7], dtype=torch.int32) + RANK
    got = hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    check(got, np.sum(per_rank, axis=0) * 3, "scales of integers")


def gradients_of_groups(ranks, words):
    me, size = ranks.index(RANK), len(ranks)
    weights = [torch.arange(6.0).view(3, 2) + rank for rank in range(SIZE)]

    def leaf(rows=3):
        return torch.full((rows, 2), 2.0, dtype=torch.float64, requires_grad=True)

    def gradient(leaves, outputs, factors):
        sum((out * factor).sum() for out, factor in zip(outputs, factors, strict=True)).backward()
        return [one.grad for one in leaves]

    mean = np.mean([wide(weights[rank]) for rank in ranks], axis=0)
    for op, want in ((hvd.Sum, mean * size), (hvd.Average, mean)):
        x, y, whole = leaf(), leaf(), torch.ones(2, dtype=torch.int32)
        outs = hvd.grouped_allreduce([x, whole, y], op=op, postscale_factor=0.5, **words)
        got = gradient([x, y], outs, [weights[RANK], torch.zeros(2), weights[RANK] * 2])
        check(got[0], want * 0.5, "grouped_allreduce", op)
        check(got[1], want, "grouped_allreduce", op)
    counts = [rank + 1 for rank in ranks]
    start = sum(counts[:me])
    factor = [torch.arange(2.0 * sum(counts)).view(-1, 2) * (rank + 1) for rank in range(SIZE)]
    want = np.mean([wide(factor[rank]) for rank in ranks], axis=0)[start : start + counts[me]]
    y, z = leaf(counts[me]), leaf(counts[me])
    got = gradient([y, z], hvd.grouped_allgather([y, z], **words), [factor[RANK], factor[RANK] * 3])
    check(got[0], want, "grouped_allgather")
    check(got[1], want * 3, "grouped_allgather")
    # Some ranks own a row more than others.
    owned = np.array_split(np.arange(size + 1), size)
    want = np.concatenate([np.full((len(part), 2), ranks[at] + 1.0) for at, part in enumerate(owned)])
    own = torch.full((len(owned[me]), 2), RANK + 1.0)
    for op, times in ((hvd.Sum, size), (hvd.Average, 1)):
        y, z = leaf(size + 1), leaf(size + 1)
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


def sparse(ranks, words):
    def bring(rank, dtype):
        spans = torch.tensor([[rank, 1, rank], [0, 3, 0]])
        return torch.sparse_coo_tensor(spans, torch.tensor([1, 2, 4 * rank]).to(dtype), (SIZE + 2, 4))

    for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
        for op in (hvd.Sum, hvd.Average):
            got = hvd.sparse_allreduce_async(bring(RANK, dtype), "sparse", op, **words)().to_dense()
            want = sum(wide(bring(rank, dtype).to_dense()) for rank in ranks)
            if op is hvd.Average and dtype.is_floating_point:
                near = np.allclose(wide(got), want / len(ranks), rtol=4 * torch.finfo(dtype).eps)
                assert near, (dtype, got, want)
            else:
                check(got, want if op is hvd.Sum else np.trunc(want / len(ranks)), "sparse", dtype, op)
    empty = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0, 3), (5, 3))
    rows = torch.sparse_coo_tensor(torch.tensor([[4]]), torch.ones(1, 3), (5, 3))
    got = hvd.sparse_allreduce_async(rows if ranks[0] == RANK else empty, None, hvd.Sum, **words)()
    check(got.to_dense(), wide(rows.to_dense()), "sparse rows")
    if len(ranks) > 1:
        other = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (4 + RANK,))
        wait = hvd.sparse_allreduce_async(other, "sizes", hvd.Sum, **words)
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
    axis = torch.zeros(SIZE)
    axis[RANK] = RANK + 1.0
    for mine, want in (
        (torch.zeros(5), np.zeros(5)),
        (torch.full((4,), 3.0), np.full(4, 3.0)),
        (axis, np.arange(1.0, SIZE + 1)),
        (torch.zeros(0), np.zeros(0)),
    ):
        check(hvd.allreduce(mine, op=hvd.Adasum), want, "adasum")
    refused(ValueError, lambda: hvd.allreduce(torch.ones(3, dtype=torch.int32), op=hvd.Adasum))


def errors():
    ones = torch.ones(2 * SIZE, 2)

    def splits(numbers, dtype=torch.int32):
        return lambda: hvd.alltoall(ones, torch.tensor(numbers, dtype=dtype))

    for words, call in (
        ("1-D", splits([[1] * SIZE])),
        ("int32", splits([1] * SIZE, torch.int64)),
        ("entries", splits([1] * (SIZE + 1))),
        ("do not fit", splits([3] * SIZE)),
        ("do not fit", splits([-1] + [1] * (SIZE - 1))),
        ("", lambda: hvd.alltoall(torch.tensor(1.0))),
        ("", lambda: hvd.allgather(torch.tensor(1.0))),
        ("", lambda: hvd.reducescatter(torch.tensor(1.0))),
        ("root", lambda: hvd.broadcast(ones, SIZE)),
        ("supersedes", lambda: hvd.allreduce(ones, average=True, op=hvd.Sum)),
        ("not supported", lambda: hvd.allreduce(ones.to(torch.complex64))),
        ("layout", lambda: hvd.allreduce(ones.to_sparse())),
        ("meta", lambda: hvd.allreduce(torch.ones(2, device="meta"))),
        ("average", lambda: hvd.allreduce(torch.ones(2, dtype=torch.bool))),
    ):
        refused(ValueError, call, words)
    if SIZE > 1:
        refused(ValueError, lambda: hvd.alltoall(torch.ones(SIZE + 1)), "multiple")
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        refused(hvd.HorovodInternalError, lambda op=op: hvd.reducescatter(ones, op=op))
        refused(hvd.HorovodInternalError, lambda op=op: hvd.grouped_reducescatter([ones], op=op))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(hvd.allreduce(torch.ones(2), average=False), np.full(2, float(SIZE)), "average=False")
    assert [one.category for one in caught] == [DeprecationWarning] and caught[0].filename == __file__
    for group in SETS[1:]:
        if RANK in group.ranks:
            outside = next(rank for rank in range(SIZE) if rank not in group.ranks)
            refused(ValueError, lambda g=group, o=outside: hvd.broadcast(ones, o, process_set=g), "root")
            refused(NotImplementedError, lambda g=group: hvd.allreduce(ones, op=hvd.Adasum, process_set=g))
        else:
            refused(ValueError, lambda g=group: hvd.allreduce(ones, process_set=g), "not a member")
            refused(ValueError, lambda g=group: hvd.alltoall(ones, process_set=g), "not a member")
    # All failed calls counted, on every rank alike, so that calls without a name still find each other.
    mistakes = [
        lambda: hvd.broadcast(torch.ones(3), min(RANK, 1), name="root"),
        lambda: hvd.allreduce(torch.ones(3), name="scale", prescale_factor=1.0 + RANK),
        lambda: hvd.allgather(torch.ones(2, 3 + RANK), name="row of a gather"),
        lambda: hvd.alltoall(torch.ones(SIZE, 2 + RANK), name="row"),
        lambda: hvd.reducescatter(torch.ones(SIZE + RANK), name="shape"),
        lambda: hvd.reducescatter(torch.ones(SIZE), name="op", op=hvd.Sum if RANK else hvd.Average),
        lambda: hvd.grouped_allreduce([torch.ones(2), torch.ones(2 + RANK), torch.ones(2)], name="second"),
        lambda: hvd.allreduce(torch.ones(4), name="adasum", op=hvd.Sum if RANK else hvd.Max),
    ]
    for mistake in mistakes if SIZE > 1 else []:
        refused(hvd.HorovodInternalError, mistake, "Mismatched")
        check(hvd.allreduce(torch.ones(2), op=hvd.Sum), np.full(2, float(SIZE)), "after a mismatch")


def names():
    """Names in any order; one name twice on a rank is refused, and members of groups count too."""
    handles = {
        int(i): hvd.allreduce_async(torch.full((i + 1,), float(i)), name=f"n{i}", op=hvd.Sum)
        for i in np.random.default_rng(RANK).permutation(40)
    }
    assert any(not hvd.poll(handle) for handle in handles.values()) or SIZE == 1
    for i in range(40):
        check(hvd.synchronize(handles[i]), np.full(i + 1, i * SIZE), "order", i)
    assert hvd.synchronize(handles[0]) is None
    one, more = None, ([torch.ones(2), torch.ones(3)], None, "twice", hvd.Sum)
    if RANK == 0:
        one = hvd.grouped_allreduce_async(*more)
        if SIZE > 1:
            refused(ValueError, lambda: hvd.grouped_allreduce_async(*more), "pending")
    hvd.barrier()
    if one is None:
        one = hvd.grouped_allreduce_async(*more)
    for got, count in zip(hvd.synchronize(one), (2, 3), strict=True):
        check(got, np.full(count, float(SIZE)), "twice")
    text = "ä 'quoted' / \n name\udc80"
    check(hvd.allreduce(torch.ones(1), name=text, op=hvd.Sum), np.array([float(SIZE)]), "any text")
    assert hvd.grouped_allreduce([]) == [] and hvd.synchronize(hvd.grouped_allgather_async([])) == ()
    assert hvd.synchronize(10**9) is None and hvd.poll(10**9)


class Unpicklable:
    def __reduce__(self):
        raise TypeError("not this one")


def objects():
    group = next(one for one in SETS[::-1] if one.included())
    got = hvd.allgather_object({RANK: "x" * RANK}, process_set=group)
    assert got == [{rank: "x" * rank} for rank in group.ranks]
    last = group.ranks[-1]
    got = hvd.broadcast_object({"a": 1} if last == RANK else None, last, "object", group)
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


for part in (long_arrays, gradients_of_groups, sparse):
    for group in SETS:
        if group.included():
            part(list(group.ranks), {"process_set": group})
hvd.barrier()
# From here on all ranks do the same, so that operations without a name have the same numbers again.
hvd.shutdown()
hvd.init(process_sets=SETS[1:])
for part in (not_a_number, limits_of_integers, adasum, errors, objects, names):
    part()
hvd.barrier()
hvd.shutdown()
print("rank done", flush=True)
