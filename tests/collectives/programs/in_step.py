"""Barrier-only ranks synchronize once in each optimizer step and exchange nothing."""

import sys
import time

import torch

import ringleader.torch as hvd
from ringleader.torch.basics import session

hvd.init()
model = torch.nn.Linear(4, 3)
alone = torch.nn.Linear(4, 3)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # what a script begins with reaches all ranks
alone.load_state_dict(model.state_dict())
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
plain = torch.optim.SGD(alone.parameters(), lr=0.1)
data = torch.arange(8.0).view(2, 4) + hvd.rank()

engine = session().engine
assert engine.transport.name == "uncoupled"
hvd.barrier()
before, last, slept = engine.meetings, 0.0, 0.05
for _ in range(4):
    for net, one in ((model, optimizer), (alone, plain)):
        one.zero_grad()
        net(data).square().sum().backward()
        if one is optimizer and hvd.rank() == 1:
            time.sleep(slept)
        begin = time.monotonic()
        one.step()
        if one is optimizer:
            last = time.monotonic() - begin
if sys.argv[1] == "in-step":
    assert engine.meetings - before == 4, engine.meetings - before
    assert hvd.rank() == 1 or last > slept / 2, "nobody waited for the slow rank"
else:
    assert engine.meetings == 0
for mine, own in zip(model.parameters(), alone.parameters(), strict=True):
    assert torch.equal(mine, own), "something was exchanged"
assert torch.equal(hvd.allreduce(data, op=hvd.Sum), data)
assert hvd.allgather_object(hvd.rank()) == [hvd.rank()] * hvd.size()
# They too get what another one has read: they could not continue without it.
last = hvd.size() - 1
assert hvd.broadcast_object("read" if hvd.rank() == last else None, root_rank=last) == "read"
print("rank done", flush=True)
