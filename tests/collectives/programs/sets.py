"""Process sets that are added and removed while a job runs, two of them at work at the same time."""

import os

import torch
from ranks import RANK, SIZE, hvd
from refusals import refused

from ringleader.adapters.process_sets import process_set_ids_and_ranks
from ringleader.engine.process_lifecycle import membership

EVERYBODY = {0: list(range(SIZE))}
ALL = torch.arange(1.0, SIZE + 1)


# numbers, objects and words
assert process_set_ids_and_ranks() == EVERYBODY
assert hvd.global_process_set.ranks == EVERYBODY[0]
assert hvd.global_process_set.included() and hvd.global_process_set.rank() == RANK
assert str(hvd.global_process_set) == f"ProcessSet(process_set_id=0, ranks={EVERYBODY[0]}, mpi_comm=None)"
first = hvd.add_process_set([0])
rest = hvd.add_process_set(hvd.ProcessSet(range(SIZE - 1, 0, -1)))
assert (first.process_set_id, rest.process_set_id) == (1, 2)
assert process_set_ids_and_ranks() == {**EVERYBODY, 1: [0], 2: list(range(1, SIZE))}
assert (first.size(), rest.size()) == (1, SIZE - 1)
assert first.included() == (RANK == 0)
for wrong in ([0], range(1, SIZE), [0, 0], [-1], []):
    refused(ValueError, lambda wrong=wrong: hvd.add_process_set(wrong))
if membership() is None:
    for wrong in (range(SIZE), [SIZE]):
        refused(ValueError, lambda wrong=wrong: hvd.add_process_set(wrong))
else:  # ranks of a set may be missing for a time, and sets may come to have the same ones
    assert hvd.add_process_set(range(SIZE + 1)).process_set_id == 0
    absent = hvd.add_process_set([SIZE])
    assert (absent.process_set_id, absent.ranks) == (None, [])
    refused(ValueError, lambda: hvd.add_process_set([SIZE]), "exists already")
    assert hvd.remove_process_set(absent) is True
    assert hvd.remove_process_set(absent) is False
fresh = hvd.ProcessSet([0])
assert (fresh.included(), fresh.size(), fresh.rank()) == (None, None, None)
refused(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=fresh), "not registered")

mine, other = (first, rest) if RANK == 0 else (rest, first)
words = f"Allreduce: Rank {RANK} is not a member of the provided process set."
refused(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=other), words)
refused(ValueError, other.rank)
assert mine.rank() == mine.ranks.index(RANK)

# roots are numbers among all
ours = torch.tensor([rank + 1.0 for rank in mine.ranks])
value, root = torch.full((3,), RANK + 1.0), mine.ranks[-1]
assert torch.equal(hvd.broadcast(value, root, process_set=mine), torch.full((3,), root + 1.0))
refused(ValueError, lambda: hvd.broadcast(value, other.ranks[0], process_set=mine), "root rank")

# the same names at work in several sets at once, begun in different orders
sets = [hvd.global_process_set, mine][:: 1 if RANK % 2 else -1]
handles = {
    one.process_set_id: [hvd.allreduce_async(value * k, name=f"n{k}", op=hvd.Sum, process_set=one)
                         for k in range(5)]
    for one in sets
}  # fmt: skip
for one, total in ((mine, ours.sum()), (hvd.global_process_set, ALL.sum())):
    for k, handle in enumerate(handles[one.process_set_id]):
        assert torch.equal(hvd.synchronize(handle), (total * k).expand(3))

# a barrier of a set does not wait for the others, of whom the first has not come
if RANK > 0:
    hvd.barrier(process_set=mine)
hvd.barrier()
if RANK == 0:
    hvd.barrier(process_set=mine)

# an error in one set leaves it and the others usable; ranks have counted differently from here on
if SIZE > 2 and RANK > 0:
    differing = {"name": "shape", "process_set": rest}
    shapes = "Mismatched tensor shapes"
    refused(hvd.HorovodInternalError, lambda: hvd.allreduce(torch.ones(RANK), **differing), shapes)
assert torch.equal(hvd.allreduce(value, op=hvd.Sum, process_set=mine, name="mine"), ours.sum().expand(3))
assert torch.equal(hvd.allreduce(value, op=hvd.Sum, name="all"), ALL.sum().expand(3))

# removing: the object is void, the number is given out again, and what is pending ends
pending = hvd.allreduce_async(value, name=f"alone {RANK}", process_set=rest) if RANK > 0 else None
assert hvd.remove_process_set(rest) is True
assert rest.process_set_id is None
assert hvd.remove_process_set(rest) is False
assert hvd.remove_process_set(hvd.global_process_set) is False
if pending is not None and SIZE > 2:
    refused(hvd.HorovodInternalError, lambda: hvd.synchronize(pending), "removed")
refused(ValueError, lambda: hvd.allreduce(value, process_set=rest), "not registered")
assert process_set_ids_and_ranks() == {**EVERYBODY, 1: [0]}
hvd.add_process_set(rest)
assert rest.process_set_id == 2
mine = first if RANK == 0 else rest
assert torch.equal(hvd.allreduce(value, op=hvd.Sum, process_set=mine, name="mine"), ours.sum().expand(3))

# ranks that disagree about a set hear of it, all of them
refused(hvd.HorovodInternalError, lambda: hvd.add_process_set([0] if RANK else [0, 1]), "Mismatched")
assert torch.equal(hvd.allreduce(value, op=hvd.Sum, name="all"), ALL.sum().expand(3))

# shutdown makes all of them void, and numbers begin anew
hvd.shutdown()
assert (first.process_set_id, rest.process_set_id) == (None, None)
refused(ValueError, lambda: hvd.add_process_set([0]), "has not been initialized")
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "0"
hvd.init()
refused(ValueError, lambda: hvd.add_process_set([0]), "HOROVOD_DYNAMIC_PROCESS_SETS")
hvd.shutdown()
hvd.init(process_sets="dynamic")
assert hvd.add_process_set([0]).process_set_id == 1
assert torch.equal(hvd.allreduce(value, op=hvd.Sum, name="all"), ALL.sum().expand(3))
print("rank done")
