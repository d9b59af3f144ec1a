"""Ranks with windows of every kind in use that work until they are killed."""

import os
import sys

import torch

import ringleader.torch as hvd

hvd.init()
model = torch.nn.Linear(500, 500)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model.named_parameters())
handle = hvd.allreduce_async(torch.ones(9), name="pending")
step = 0
while True:
    optimizer.zero_grad()
    model(torch.ones(1, 500)).sum().backward()
    optimizer.step()
    hvd.allreduce_(torch.ones(400_000))
    step += 1
    if step == 3:
        # One write per rank: lines of several ranks do not mix.
        os.write(1, f"working {os.getpid()}\n".encode())
        sys.stdout.flush()
