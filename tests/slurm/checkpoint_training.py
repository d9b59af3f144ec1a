"""A training that saves each step to FILE and continues from it; rank 0 prints the loss of each step."""

import os
import sys
import time
from pathlib import Path

import torch

import ringleader.torch as hvd

steps, file = int(sys.argv[1]), Path(sys.argv[2])
hvd.init()
torch.manual_seed(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
done = 0
if file.exists():
    done, weights, momenta = torch.load(file)
    model.load_state_dict(weights)
    optimizer.load_state_dict(momenta)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
while done < steps:
    torch.manual_seed(1000 * done + hvd.rank())
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    done += 1
    mean = hvd.allreduce(loss.detach(), name="loss").item()
    if hvd.rank() == 0:
        torch.save((done, model.state_dict(), optimizer.state_dict()), f"{file}.new")
        Path(f"{file}.new").replace(file)
        restart = os.environ.get("SLURM_RESTART_COUNT", "0")
        print(f"step {done} loss {mean:.6f} restart {restart}", flush=True)
    time.sleep(0.2)
