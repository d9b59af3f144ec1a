"""Memory of removed process sets that is looked at still when ranks end.

MPI frees windows that are left when it ends, each rank those in its table in their order there. Rank 0 has
the second set of ranks 0 and 1 where the set of 0 and 2 was, before the first one; rank 1 has it behind.
"""

import torch

import ringleader.torch as hvd
from ringleader.engine.process_lifecycle import PROCESS

hvd.init()
RANK = hvd.rank()
looked_at = []


def made(ranks):
    one = hvd.add_process_set(ranks)
    if RANK in ranks:
        hvd.allreduce(torch.ones(10), process_set=one, name="used")
    return one


def removed_while_looked_at(one):
    if one.included():
        group = PROCESS.get().registry.groups()[one.process_set_id]
        looked_at.extend(part for segment in group.comms.segments for part in segment.parts)
        assert len(group.comms.segments) > 0
    assert hvd.remove_process_set(one)


other = made([0, 2])
removed_while_looked_at(made([0, 1]))
assert hvd.remove_process_set(other)
removed_while_looked_at(made([0, 1]))
assert bool(looked_at) == (RANK < 2)
print("rank done", flush=True)
