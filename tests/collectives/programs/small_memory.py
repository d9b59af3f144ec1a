"""Little room in /dev/shm: everything is right, only slower. argv: the transport that must be in use."""

import sys

import torch

import ringleader.torch as hvd
from ringleader.torch.basics import session

hvd.init()
assert session().engine.transport.name == sys.argv[1], session().engine.transport.name
assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3
model = torch.nn.Linear(2000, 2000)
hvd.broadcast_parameters(model.state_dict(), 0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
for _ in range(2):
    optimizer.zero_grad()
    (model(torch.ones(1, 2000)).sum() * (hvd.rank() + 1)).backward()
    optimizer.step()
grad = sum(range(1, hvd.size() + 1)) / hvd.size()
assert torch.allclose(model.bias.grad, torch.full((2000,), grad))
print("rank done", flush=True)
