"""Every operation on tensors on GPUs. argv: "shared" if all ranks use one GPU, else each has its own."""

import sys

import torch

import ringleader.torch as hvd
from ringleader.torch.basics import session

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
SHARED = "shared" in sys.argv
torch.cuda.set_device(0 if SHARED else hvd.local_rank())
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
    out, received = hvd.alltoall(
        torch.arange(2 * SIZE, device=CUDA).to(dtype), splits=torch.tensor([2] * SIZE, dtype=torch.int32)
    )
    check(out, [2 * RANK, 2 * RANK + 1] * SIZE, "alltoall", dtype)
    assert received.tolist() == [2] * SIZE
    if dtype not in (torch.uint8,):
        even = torch.ones(2 * SIZE, dtype=dtype, device=CUDA)
        check(hvd.reducescatter(even, op=hvd.Sum), [SIZE] * 2, "reducescatter", dtype)
        odd = torch.ones(SIZE + 1, dtype=dtype, device=CUDA)
        check(hvd.reducescatter(odd, op=hvd.Sum), [SIZE] * (1 + (RANK == 0)), "uneven", dtype)
assert session().engine.queue.devices.name == ("staged" if SHARED else "distributed")

# The script's own stream: what it computed before is reduced, what it computes afterwards sees the result.
stream = torch.cuda.Stream()
for turn in range(20):
    with torch.cuda.stream(stream):
        values = torch.zeros(1 << 22, device=CUDA)
        for _ in range(8):
            values.add_(RANK + turn)
        handle = hvd.allreduce_async_(values, name="on a stream", op=hvd.Sum)
        hvd.synchronize(handle)
        twice = values * 2
    stream.synchronize()
    want = 16.0 * (sum(range(SIZE)) + SIZE * turn)
    assert twice.min().item() == twice.max().item() == want, (turn, twice.min(), want)

# Gradients are in buckets on the GPU, and training keeps the ranks together.
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).to(CUDA)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
for step in range(5):
    torch.manual_seed(100 * step + RANK)
    optimizer.zero_grad()
    model(torch.randn(16, 64, device=CUDA)).square().mean().backward()
    optimizer.step()
    assert all(parameter.grad.device == CUDA for parameter in model.parameters())
flat = torch.cat([parameter.detach().view(-1) for parameter in model.parameters()])
everybody = hvd.allgather(flat.view(1, -1))
assert all(torch.equal(row, everybody[0]) for row in everybody)
hvd.broadcast_optimizer_state(optimizer, 0)
hvd.broadcast_parameters(model.state_dict(), 0)

try:
    hvd.allreduce(torch.ones(3, device=CUDA if RANK else "cpu"), name="mixed")
except hvd.HorovodInternalError as error:
    assert "Mismatched devices" in str(error), error
else:
    raise AssertionError("different devices went through")
check(hvd.allreduce(torch.ones(2, device=CUDA), op=hvd.Sum), [SIZE] * 2, "after a mismatch")
hvd.shutdown()
print("rank done", flush=True)
