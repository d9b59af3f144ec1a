"""PyTorch's DistributedDataParallel, as its tutorial has it. Nothing in here knows of Ringleader."""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _step in range(int(sys.argv[1])):
    time.sleep(0.02)  # the input
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(16, 64)), torch.randint(10, (16,)))
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
