"""Every operation on tensors of one GPU that all ranks use; `make gpu` has more, and NCCL."""

import torch
from ranks import RANK, SIZE, hvd
from refusals import refused

from ringleader.torch.basics import session

torch.cuda.set_device(0)
CUDA = torch.device("cuda", torch.cuda.current_device())
TOTAL = sum(range(1, SIZE + 1))


def check(got, want, *what):
    assert got.device == CUDA, (what, got.device)
    assert got.tolist() == want, (what, got, want)


for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int16, torch.int64, torch.uint8):
    mine = torch.full((5,), RANK + 1, dtype=dtype, device=CUDA)
    check(hvd.allreduce(mine, op=hvd.Sum), [TOTAL] * 5, "allreduce", dtype)
    check(hvd.allreduce_(mine.clone(), op=hvd.Max), [SIZE] * 5, "allreduce_", dtype)
    check(hvd.broadcast(mine, SIZE - 1), [SIZE] * 5, "broadcast", dtype)
    rows = torch.full((RANK + 1,), RANK, dtype=dtype, device=CUDA)
    check(hvd.allgather(rows), [rank for rank in range(SIZE) for _ in range(rank + 1)], "allgather", dtype)
    two_each = torch.tensor([2] * SIZE, dtype=torch.int32)
    out, received = hvd.alltoall(torch.arange(2 * SIZE, device=CUDA).to(dtype), splits=two_each)
    check(out, [2 * RANK, 2 * RANK + 1] * SIZE, "alltoall", dtype)
    assert received.tolist() == [2] * SIZE
    if dtype is not torch.uint8:
        odd = torch.ones(SIZE + 1, dtype=dtype, device=CUDA)
        check(hvd.reducescatter(odd, op=hvd.Sum), [SIZE] * (1 + (RANK == 0)), "reducescatter", dtype)
assert session().engine.queue.devices.name == "staged"

mixed = torch.ones(3, device=CUDA if RANK else "cpu")
refused(hvd.HorovodInternalError, lambda: hvd.allreduce(mixed, name="mixed"), "Mismatched devices")
check(hvd.allreduce(torch.ones(2, device=CUDA), op=hvd.Sum), [SIZE] * 2, "after a mismatch")
print("rank done", flush=True)
