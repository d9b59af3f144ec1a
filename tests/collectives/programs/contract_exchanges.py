"""The operations that move rows between ranks, groups of tensors, sets of ranks and Adasum against NumPy.

argv: the transport that must be in use. `contract.py` has allreduce, allgather and broadcast.
"""

import sys
from itertools import product

import numpy as np
import torch
from expected import Operation
from random_programs import RANK, SIZE, Asked, joining, process_set

import ringleader.torch as hvd
from ringleader.torch.basics import session

assert session().engine.transport.name == sys.argv[1], session().engine.transport.name
EVERYBODY = list(range(SIZE))
DTYPES = [
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16",
    "float32", "float64",
]  # fmt: skip
DONE = 0


def operation(kind: str, **fields: object) -> Operation:
    """Describe an operation of all ranks; ``fields`` are what is not usual about it."""
    usual: Operation = {
        "kind": kind, "dtype": "float32", "members": EVERYBODY, "name": "again", "root": 0, "seed": 1,
        "strided": False, "inplace": False, "op": "Sum", "prescale": 1.0, "postscale": 1.0, "wrong": None,
        "shapes": [(3,)], "say_splits": True, "extra": 0,
    }  # fmt: skip
    made = {**usual, **fields}
    count = len(made["members"])
    made.setdefault("rows", [[(rank + at) % 3 for rank in range(count)] for at in range(len(made["shapes"]))])
    made.setdefault("splits", [[(rank + 2 * to) % 3 for to in range(count)] for rank in range(count)])
    return made


def check(kind: str, **fields: object) -> None:
    """Carry an operation out in both ways; `Asked` compares with NumPy."""
    global DONE
    DONE += 1
    asked = operation(kind, **fields)
    try:
        Asked(asked).do()
        later = Asked(asked)
        later.begin()
        later.end()
    except Exception:
        print(f"rank {RANK}: {asked}", file=sys.stderr)
        raise


def everything(members: list[int]) -> None:
    """All kinds over a set of ranks, each element type once with each."""
    for dtype in DTYPES:
        check("alltoall", dtype=dtype, members=members, shapes=[(2, 3)])
        check("alltoall", dtype=dtype, members=members, shapes=[()], extra=2)
        even = [[2] * len(members)] * len(members)
        check("alltoall", dtype=dtype, members=members, say_splits=False, splits=even, strided=True)
        for rows in (0, 1, len(members), 3 * len(members) + 1):
            check("reducescatter", dtype=dtype, members=members, shapes=[(rows, 2)])
        check("reducescatter", dtype=dtype, members=members, shapes=[(5,)], strided=True)
        check("grouped_allreduce", dtype=dtype, members=members, shapes=[(4,), (), (0,), (2, 3)])
        check("grouped_allreduce", dtype=dtype, members=members, shapes=[(4,), (1, 2)], inplace=True)
        check("grouped_allgather", dtype=dtype, members=members, shapes=[(), (2,), (0,)])
        check("grouped_reducescatter", dtype=dtype, members=members, shapes=[(7, 2), (1,), (2,)])
    for dtype, (pre, post) in product(("int32", "float16", "float64"), ((0.5, 1.0), (1.0, 2.0), (2.0, 0.5))):
        for kind, op in product(("reducescatter", "grouped_reducescatter"), ("Sum", "Average")):
            scales = {"prescale": pre, "postscale": post}
            check(kind, dtype=dtype, op=op, members=members, shapes=[(4, 3)], **scales)
    # Beyond a slot of the window, and beyond a piece between hosts.
    rows = [[150_001 + rank for rank in range(len(members))]]
    check("allgather", members=members, shapes=[(2,)], rows=rows)
    parts = [[70_001 * (rank + to + 1) for to in range(len(members))] for rank in range(len(members))]
    check("alltoall", members=members, shapes=[(3,)], splits=parts)
    for dtype in ("float32", "bfloat16"):
        check("reducescatter", dtype=dtype, members=members, shapes=[(400_001, 2)])
        check("grouped_allreduce", dtype=dtype, members=members, shapes=[(400_001,), (3,), (300_000,)])
    check("broadcast", members=members, root=len(members) - 1, shapes=[(500_009,)])


def gradients() -> None:
    """Every rank learns how much its input counts in everybody's output."""
    ones = torch.ones(SIZE * 2, 3, requires_grad=True)
    out, _ = hvd.alltoall(ones, splits=torch.tensor([2] * SIZE, dtype=torch.int32))
    (out * (RANK + 1)).sum().backward()
    want = np.repeat(np.arange(1, SIZE + 1), 2)[:, None] * np.ones((1, 3))
    assert np.array_equal(ones.grad.numpy(), want), ones.grad
    for op, factor in ((hvd.Sum, SIZE), (hvd.Average, 1)):
        ones = torch.ones(SIZE, 2, requires_grad=True)
        (hvd.reducescatter(ones, op=op) * (RANK + 1)).sum().backward()
        want = np.arange(1, SIZE + 1)[:, None] * np.ones((1, 2)) * factor
        assert np.allclose(ones.grad.numpy(), want), (op, ones.grad)
    one, two = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
    first, second = hvd.grouped_allreduce([one, two], op=hvd.Sum)
    (first.sum() + 2 * second.sum()).backward()
    assert torch.equal(one.grad, torch.full((3,), float(SIZE)))
    assert torch.equal(two.grad, torch.full((2,), 2.0 * SIZE))


def adasum() -> None:
    """Adasum's rule for pairs, in a tree over the ranks."""
    if SIZE & (SIZE - 1):
        try:
            hvd.allreduce(torch.ones(2), op=hvd.Adasum)
        except NotImplementedError:
            return
        raise AssertionError("Adasum went through although the number of ranks is no power of two")
    for dtype, tolerance in (("float16", 4e-3), ("float32", 1e-5), ("float64", 1e-12)):
        for count in (1, 7, 400_001):
            arrays = [np.random.default_rng([rank, count]).normal(size=count) for rank in range(SIZE)]
            tensors = [torch.from_numpy(array).to(getattr(torch, dtype)) for array in arrays]
            level = [one.to(torch.float64).numpy() for one in tensors]
            while len(level) > 1:
                level = [_pair(*level[at : at + 2]) for at in range(0, len(level), 2)]
            got = hvd.allreduce(tensors[RANK], op=hvd.Adasum, name="adasum").to(torch.float64).numpy()
            assert np.allclose(got, level[0], rtol=tolerance, atol=tolerance), (dtype, count, got, level[0])


def _pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    dot = a @ b
    return (1 - dot / (2 * (a @ a))) * a + (1 - dot / (2 * (b @ b))) * b


def sparse() -> None:
    """The sum of sparse tensors with their own indices; an index may come twice."""
    spans, shape = torch.tensor([[RANK, SIZE, RANK]]), (SIZE + 1, 2)
    mine = torch.sparse_coo_tensor(spans, torch.ones(3, 2), shape, check_invariants=True)
    for op, factor in ((hvd.Sum, 1.0), (hvd.Average, 1 / SIZE)):
        got = hvd.sparse_allreduce_async(mine, name="sparse", op=op)().to_dense()
        want = torch.full((SIZE + 1, 2), 2.0)
        want[SIZE] = SIZE
        assert torch.allclose(got, want * factor), got


everything(EVERYBODY)
if SIZE > 2:
    everything([0, SIZE - 1])
    everything([1])
    assert hvd.remove_process_set(process_set([0, SIZE - 1]))
gradients()
adasum()
sparse()
for early in range(SIZE):
    counts = [0 if rank == early else 2 for rank in range(SIZE)]
    for dtype, op in (("int32", "Sum"), ("float32", "Average")):
        phase = {"counts": counts, "name": f"early{early}", "op": op, "dtype": dtype, "gather": True}
        joining(phase)
hvd.shutdown()
assert DONE > 150
print("rank done", flush=True)
