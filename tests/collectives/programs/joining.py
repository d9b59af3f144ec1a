"""Ranks that run out of data before the others, errors while they wait, and what follows."""

import time

import torch
from ranks import RANK, SIZE, hvd
from refusals import refused

STEPS = 4


def same_everywhere(number):
    assert hvd.allgather(torch.tensor([number])).unique().numel() == 1, number


def reductions(active, dtype):
    """What ranks do while ``active`` of them are left: the divisor is the number of all ranks."""
    ones = torch.ones(40, dtype=dtype) * 12
    torch.testing.assert_close(hvd.allreduce(ones), torch.full((40,), 12 * active / SIZE).to(dtype))
    assert torch.equal(hvd.allreduce(ones, op=hvd.Max, name="seen before"), ones)
    handles = [hvd.allreduce_async_(ones * k, op=hvd.Sum, name=f"many {k}") for k in range(12)]
    for k, handle in enumerate(handles):
        assert torch.equal(hvd.synchronize(handle), ones * k * active)
    both = hvd.grouped_allreduce([ones, torch.ones(700_000, dtype=dtype)], op=hvd.Sum)
    assert all((one == (12, 1)[at] * active).all() for at, one in enumerate(both))


# every rank once the first to join, and every rank once the last
for turn in range(SIZE):
    for dtype in (torch.float32, torch.int64, torch.bfloat16):
        late = (RANK - turn) % SIZE
        reductions(SIZE, dtype)
        if late == 0:
            last = hvd.join()
        else:
            time.sleep(0.02)
            reductions(SIZE - 1, dtype)
            for _ in range(late):
                hvd.barrier()  # complete when all that are earlier have joined
            last = hvd.join()
        assert last == (SIZE - 1 + turn) % SIZE, (last, turn)
        same_everywhere(last)

# operations that cannot be done without a rank end with an error; the rest continues
rows = torch.ones(SIZE, 2)
if RANK == 0:
    assert (hvd.join() != 0) == (SIZE > 1)
else:
    error = hvd.HorovodInternalError
    refused(error, lambda: hvd.allgather(rows), "Allgather", "joined")
    refused(error, lambda: hvd.broadcast(rows, 1), "Broadcast", "joined")
    refused(error, lambda: hvd.alltoall(rows), "Alltoall", "joined")
    refused(error, lambda: hvd.reducescatter(rows), "Reducescatter", "joined")
    if SIZE > 2:
        refused(error, lambda: hvd.allreduce(torch.ones(RANK), name="shape"), "Mismatched tensor shapes")
    assert torch.equal(hvd.allreduce(rows, op=hvd.Sum), rows * (SIZE - 1))
    hvd.join()
assert torch.equal(hvd.allreduce(rows, op=hvd.Sum), rows * SIZE)
assert torch.equal(hvd.alltoall(rows), rows)

# what a rank began before it joined is still its own
handle = hvd.allreduce_async(rows * RANK, op=hvd.Sum, name="before")
if RANK == 0:
    hvd.join()
else:
    time.sleep(0.02)
    hvd.join()
assert torch.equal(hvd.synchronize(handle), rows * (SIZE * (SIZE - 1) / 2))

# gradients of an optimizer: zeros of ranks that have no more batches
model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 1))
for parameter in model.parameters():
    torch.nn.init.constant_(parameter, 0.25)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5), model.named_parameters())
batches = STEPS - (RANK == 0)
for step in range(batches):
    optimizer.zero_grad()
    before = model[1].bias.detach().clone()
    (model(torch.ones(2, 5)).sum() / 2).backward()
    optimizer.step()
    active = SIZE if step < STEPS - 1 else SIZE - 1
    torch.testing.assert_close(model[1].bias.detach(), before - 0.5 * active / SIZE)
last = hvd.join()
assert last != 0 or SIZE == 1
same_everywhere(last)
hvd.broadcast_parameters(model.state_dict(), root_rank=last)
assert torch.equal(hvd.allreduce(rows, op=hvd.Sum), rows * SIZE)
print("rank done")
