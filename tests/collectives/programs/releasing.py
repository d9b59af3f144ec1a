"""Registered memory is given back when all ranks have released it, whenever each of them does."""

import torch

import ringleader.torch as hvd
from ringleader.torch.basics import session

hvd.init()
rank, size, engine = hvd.rank(), hvd.size(), session().engine
world = session().group.comms
LAST = size - 1


def mapped():
    with open("/proc/self/maps") as file:
        return sum("osc" in line or "mpi_shm" in line for line in file)


def add(value):
    """Do one operation: with it ranks tell each other what they have released."""
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name=f"{value}").tolist() == [size] * 3


def kept():
    """Return how many segments there are, which is the same on all ranks."""
    count = len(world.segments)
    assert hvd.allgather_object(count) == [count] * size
    return count


add("first")
before, maps = kept(), mapped()
one, two = engine.register(100_000, "float32"), engine.register(50_000, "float32")
assert kept() == before + 2
# One after the other, the last rank in the end.
for turn in range(size):
    if turn == rank:
        engine.release(one)
        one = None
    add(turn)
    assert kept() == before + (2 if turn < LAST else 1)
# What an array lies over stays, on all ranks, until the array is gone and there is something to agree on.
view = two.mine[5:9] if rank == LAST else None
engine.release(two)
two = None
add("looked at")
assert kept() == before + 1
if view is not None:
    view.fill_(7.0)
    assert view.tolist() == [7.0] * 4
view = None
three = engine.register(10, "float32")
add("not looked at any more")
assert kept() == before + 1
engine.release(three)
three = None
# Many of them, which ranks release at different times, among operations that are pending.
held = []
for turn in range(60):
    held.append(engine.register(30_000, "float32"))
    handle = hvd.allreduce_async(torch.ones(2), op=hvd.Sum, name=f"pending {turn}")
    if turn % (rank + 2) == 0:
        for region in held:
            engine.release(region)
        held, region = [], None
    assert hvd.synchronize(handle).tolist() == [size] * 2
for region in held:
    engine.release(region)
held, region = [], None
add("all released")
add("and told")
assert kept() == before, (kept(), before)
assert mapped() <= maps + size, (mapped(), maps)
print("rank done", flush=True)
