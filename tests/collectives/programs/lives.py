"""Many lives of the engine in one process leave nothing behind, and arrays outlive them.

argv: how many, and a word if what is left is not counted, as of the fake NCCL.
"""

import os
import sys
import threading

import torch
from refusals import refused

import ringleader.torch as hvd


def ours():
    """Count what this process has mapped, its open files, and its threads."""
    with open("/proc/self/maps") as file:
        mapped = sum("shm" in line or "osc" in line or "(deleted)" in line for line in file)
    return mapped, len(os.listdir("/proc/self/fd")), threading.active_count()


LIVES, kept = int(sys.argv[1]), []
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
settled = None
for life in range(LIVES):
    assert not hvd.is_initialized()
    hvd.init()
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    sets = [hvd.add_process_set(ranks) for ranks in ([0], range(1, size))] if size > 1 else []
    mine = next((one for one in sets if one.included()), hvd.global_process_set)
    value = torch.full((2000,), float(rank + life))
    wanted = sum(other + life for other in mine.ranks)
    assert hvd.allreduce(value, op=hvd.Sum, process_set=mine, name="in a set")[7].item() == wanted
    handles = [hvd.allreduce_async(value, op=hvd.Sum, name=f"{k}") for k in range(5)]
    handles += [hvd.allreduce_async_(value.clone(), op=hvd.Sum, name=f"in place {k}") for k in range(5)]
    for handle in handles:
        assert hvd.synchronize(handle)[0].item() == sum(range(size)) + life * size
    if life < 5:
        model = torch.nn.Linear(4, 4)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        kept.append(model.weight.grad.fill_(life))
    if sets and life % 3 == 0:
        hvd.remove_process_set(sets[0])
    # What nobody waited for does not hold up the end, not even what one rank alone asked for. (Between hosts
    # MPI may still write to the memory of such after the end, so it is kept, and would be counted below.)
    if hvd.local_size() == size:
        if life % 4 == 0:
            hvd.allreduce_async(value, name="never waited for")
        if life % 10 == 0:
            hvd.allreduce_async(value, name=f"alone {rank}")
    hvd.shutdown()
    hvd.shutdown()
    for question in (hvd.rank, hvd.size, hvd.local_rank, hvd.cross_size):
        refused(ValueError, question, "has not been initialized")
    refused(hvd.HorovodInternalError, lambda: hvd.allreduce(torch.ones(1)))
    if life == LIVES // 2:
        settled = ours()
now = ours()
grown = [after - before for before, after in zip(settled, now, strict=True)]
assert max(grown) <= 2 or len(sys.argv) > 2, (settled, now)
assert all(bool((one == life).all()) for life, one in enumerate(kept))
print("rank done", flush=True)
