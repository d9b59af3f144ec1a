"""Ranks that change the process sets while others are in an operation: all hear who waits for what."""

import torch
from ranks import RANK, SIZE, hvd
from refusals import refused

from ringleader.adapters.process_sets import process_set_ids_and_ranks

LAST = SIZE - 1
ONES = torch.ones(3)


def usable(name):
    assert torch.equal(hvd.allreduce(ONES, op=hvd.Sum, name=name), ONES * SIZE)


# one rank registers a set, the others reduce
said = f"rank {LAST} for 'process_set.noname' (hvd.add_process_set([0]))", "rank 0 for 'allreduce.x'"
if RANK == LAST:
    refused(hvd.HorovodInternalError, lambda: hvd.add_process_set([0]), *said)
else:
    refused(hvd.HorovodInternalError, lambda: hvd.allreduce(ONES, name="x"), *said)
assert process_set_ids_and_ranks() == {0: list(range(SIZE))}
usable("after add")

# an operation that nobody waits for holds nothing up, in either order
if RANK == 0:
    handle = hvd.allreduce_async(ONES, name="later", op=hvd.Sum)
first = hvd.add_process_set([0])
if RANK != 0:
    handle = hvd.allreduce_async(ONES, name="later", op=hvd.Sum)
assert torch.equal(hvd.synchronize(handle), ONES * SIZE)

# one rank removes it, the others wait at a barrier or register another one
for call in (hvd.barrier, lambda: hvd.add_process_set([LAST])):
    if RANK == 0:
        refused(
            hvd.HorovodInternalError, lambda: hvd.remove_process_set(first), "hvd.remove_process_set([0])"
        )
    else:
        refused(hvd.HorovodInternalError, call, "hvd.remove_process_set([0])")
    usable("after remove")
assert hvd.remove_process_set(first) is True

# a rank that has joined changes no sets
if RANK == LAST:
    hvd.join()
else:
    refused(hvd.HorovodInternalError, lambda: hvd.add_process_set([0]), f"rank {LAST} joined")
    hvd.join()
usable("after join")
print("rank done")
