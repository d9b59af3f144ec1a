"""Averages to the last bit: the sum divided by the number of ranks, in the type's own arithmetic."""

import sys

import numpy
import torch
from ranks import RANK, SIZE, hvd

from ringleader.torch.basics import session

assert session().engine.transport.name == sys.argv[1], session().engine.transport.name
KINDS = {
    torch.float32: numpy.float32,
    torch.float64: numpy.float64,
    torch.float16: numpy.float16,
    torch.bfloat16: None,
}


def values(count: int, rank: int) -> torch.Tensor:
    """Whole numbers whose sum every type holds exactly."""
    return torch.arange(count) % 17 + rank


def want(count: int, dtype: torch.dtype) -> torch.Tensor:
    total = sum(values(count, rank) for rank in range(SIZE)).numpy()
    kind = KINDS[dtype]
    if kind is None:  # NumPy has no such type: halves are divided in float32
        return torch.from_numpy(total.astype(numpy.float32) / numpy.float32(SIZE)).to(dtype)
    return torch.from_numpy(total.astype(kind) / kind(SIZE))


def check(got: torch.Tensor, dtype: torch.dtype, what: str) -> None:
    expected = want(got.numel(), dtype)
    assert torch.equal(got.flatten(), expected), (what, dtype, got.numel(), got[:4], expected[:4])


for dtype in KINDS:
    # By MPI, by every rank, in slices, in place, in pieces.
    for count in (5, 3000, 40_000, 700_000):
        mine = values(count, RANK).to(dtype)
        check(hvd.allreduce(mine), dtype, "allreduce")
        check(hvd.allreduce_(mine.clone()), dtype, "in place")
        registered = hvd.registered_empty(count, dtype=dtype)
        registered.copy_(mine)
        check(hvd.allreduce_(registered), dtype, "registered")
        parameter = torch.nn.Parameter(torch.zeros(count, dtype=dtype))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.0), [("p", parameter)])
        for _step in range(2):
            optimizer.zero_grad()
            (parameter * mine).sum().backward()
            optimizer.step()
            check(parameter.grad, dtype, "gradient")
        whole = values(count - count % SIZE, RANK).to(dtype)
        rows = hvd.reducescatter(whole, op=hvd.Average)
        check(hvd.allgather(rows), dtype, "reducescatter")
    for got in hvd.grouped_allreduce([values(count, RANK).to(dtype) for count in (7, 90, 1001)]):
        check(got, dtype, "grouped")
sparse = torch.sparse_coo_tensor(
    torch.arange(50)[None], values(50, RANK).float(), (50,), check_invariants=True
)
check(hvd.sparse_allreduce_async(sparse, "sparse", hvd.Average)().to_dense(), torch.float32, "sparse")
print("rank done", flush=True)
