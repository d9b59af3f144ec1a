"""What `recovery.py` trains and kills: recovery_script.py torchrun|ringleader|horovod DIRECTORY."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch

WAY, PLACE = sys.argv[1], Path(sys.argv[2])
if WAY == "torchrun":
    import torch.distributed as dist
elif WAY == "ringleader":
    import ringleader.torch as hvd
else:
    import horovod.torch as hvd

STEPS = 100_000


def one_step(model: Any, optimizer: Any) -> None:
    """Make one step."""
    optimizer.zero_grad()
    model(torch.ones(32, 256)).square().mean().backward()
    optimizer.step()


def note(rank: int, step: int) -> None:
    """Write down that a step is done; the rank that is to be killed then is."""
    with (PLACE / f"{socket.gethostname()}-{os.getpid()}.log").open("a") as file:
        file.write(f"{time.monotonic():.6f} {rank} {step}\n")
    order = PLACE / f"kill-{rank}"
    if order.exists():
        order.write_text(f"{time.monotonic():.6f}")
        order.rename(PLACE / "killed")
        os.kill(os.getpid(), signal.SIGKILL)


def train_with_torchrun(model: Any, optimizer: Any) -> None:
    """Train under torchrun: a checkpoint file in each step, read when the script begins."""
    dist.init_process_group("gloo")
    rank, file, begin = dist.get_rank(), PLACE / "checkpoint.pt", 0
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    if file.exists():
        kept = torch.load(file)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        begin = kept["step"]
    for step in range(begin, STEPS):
        one_step(wrapped, optimizer)
        note(rank, step)
        if rank == 0:
            kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(kept, file.with_suffix(".new"))
            file.with_suffix(".new").rename(file)


def train_elastically(model: Any, inner: Any) -> None:
    """Train as an elastic job: a commit in memory in each step."""
    hvd.init()
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            one_step(model, optimizer)
            note(hvd.rank(), state.step)
            state.step += 1
            state.commit()

    train(state)


torch.manual_seed(1)
net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
sgd = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
if WAY == "torchrun":
    train_with_torchrun(net, sgd)
else:
    train_elastically(net, sgd)
