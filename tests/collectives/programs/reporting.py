"""Train for a little longer than the report's interval; rank 1 is late in every step."""

import time

import torch

import ringleader.torch as hvd

hvd.init()
torch.manual_seed(0)  # the same weights everywhere
model = torch.nn.Linear(4, 4)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(30):
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    time.sleep(0.05 + 0.05 * (hvd.rank() == 1))
    optimizer.step()
