"""An optimizer that is dropped gives everything back, and what is held of it stays valid.

Ranks drop theirs at different times, as their garbage collectors do.
"""

import gc
import os
import weakref

import torch
from ranks import RANK, SIZE, hvd

from ringleader.torch.basics import session

KINDS = (
    {},
    {"compression": hvd.Compression.fp16},
    {"compression": hvd.Compression.topk(0.1)},
    {"compression": hvd.Compression.powersgd(1)},
    {"bucket_cap_mb": 0.01, "groups": 2},
    {"op": hvd.Adasum} if SIZE & (SIZE - 1) == 0 else {"op": hvd.Sum},
)


def train(model, **settings):
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters(), **settings)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 40)).sum().backward()
        optimizer.step()
    return optimizer


def mapped():
    with open("/proc/self/maps") as file:
        return sum("osc" in line or "mpi_shm" in line for line in file)


def facts():
    """Count mappings of shared memory, open files, segments, and what waits for the end of the session."""
    current = session()
    waiting = current.at_shutdown.count, len(current.engine._execution.gradients)
    return mapped(), len(os.listdir("/proc/self/fd")), len(current.group.comms.segments), *waiting


# Nothing keeps the optimizer or its model, whatever the exchange; nothing is left on a model that stays.
for settings in KINDS:
    model = torch.nn.Linear(40, 30)
    optimizer = train(model, **settings)
    gone = [weakref.ref(optimizer), weakref.ref(model.weight)]
    del optimizer
    gc.collect()
    assert gone[0]() is None, settings
    assert not model.weight._post_accumulate_grad_hooks, settings
    del model
    gc.collect()
    assert gone[1]() is None, settings

# A gradient that somebody holds is valid when all else is gone, and is not written to any more.
model = torch.nn.Linear(40, 30)
optimizer = train(model)
held = model.weight.grad
want = held.clone()
del model, optimizer
gc.collect()
for _ in range(3):
    train(torch.nn.Linear(40, 30))
assert torch.equal(held, want)
held.zero_()
del held

# Many of them: flat.
kept = []
settled = None
for turn in range(60):
    optimizer = train(torch.nn.Linear(40, 30), **KINDS[turn % len(KINDS)])
    kept.append(optimizer)
    if turn % (RANK + 2) == 0:
        kept.clear()
    del optimizer
    if turn in (11, 59):
        kept.clear()
        gc.collect()
        for again in range(2):
            hvd.allreduce(torch.ones(1), name=f"{turn} {again}")
            hvd.registered_empty(8)
        settled = settled or facts()
now = facts()
assert all(after <= before for before, after in zip(settled, now, strict=True)), (settled, now)

# The last tensor over registered memory takes it along.
for _ in range(30):
    hvd.allreduce_(hvd.registered_empty(5000).fill_(1.0))
assert facts()[2] <= now[2] + 1, (facts(), now)

# A rank that dropped its optimizer and joined takes part in the others' steps.
line = torch.nn.Linear(40, 30)
optimizer = train(line)
for _ in range(RANK):
    line(torch.ones(2, 40)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
del optimizer
gc.collect()
assert hvd.join() == SIZE - 1
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE
print("rank done", flush=True)
