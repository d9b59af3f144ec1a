"""A rank of an elastic job that outlives others. It does the operations of a phase, which its argument names,
until it is killed, and tells what it went through, one JSON object a line."""

import json
import os
import sys
import time

import torch

import ringleader.torch as hvd
from ringleader.engine.process_lifecycle import PROCESS


def say(**words):
    os.write(1, (json.dumps({"pid": os.getpid(), **words}) + "\n").encode())


def resources():
    with open("/proc/self/maps") as file:
        maps = sum("memfd" in line for line in file)
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * 4096
    return {"fds": len(os.listdir("/proc/self/fd")), "maps": maps, "resident": resident}


def allreduce(step):
    size, rank = hvd.size(), hvd.rank()
    for count in (2, 5000, 300_000):
        got = hvd.allreduce(torch.full((count,), float(rank + step)), op=hvd.Sum, name=f"sum.{count}")
        assert (got == size * (size - 1) / 2 + size * step).all(), (got, size, step)


def with_children(step):
    """As with workers that load data: they live longer than a rank that is killed."""
    if step == 0 and os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    allreduce(step)


def fused(step):
    size, rank = hvd.size(), hvd.rank()
    values = [torch.full((50 + k,), float(rank + k)) for k in range(8)]
    handles = [hvd.allreduce_async(one, op=hvd.Sum, name=f"f{k}") for k, one in enumerate(values)]
    for k, handle in enumerate(handles):
        assert (hvd.synchronize(handle) == size * (size - 1) / 2 + size * k).all()


def broadcast(step):
    for root in range(hvd.size()):
        value = torch.full((20_000,), float(hvd.rank() + step))
        assert (hvd.broadcast(value, root, name=f"b{root}") == root + step).all()


def from_the_first(step):
    value = torch.full((20_000,), float(hvd.rank() + step))
    assert (hvd.broadcast(value, 0, name="first") == step).all()


def allgather(step):
    rows = hvd.allgather(torch.full((100 * (hvd.rank() + 1), 3), float(hvd.rank() + step)), name="rows")
    wanted = torch.cat([torch.full((100 * (rank + 1), 3), float(rank + step)) for rank in range(hvd.size())])
    assert torch.equal(rows, wanted)


class Gradients:
    """A model's gradients, reduced in backward."""

    def __init__(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 1))
        for parameter in self.model.parameters():
            torch.nn.init.constant_(parameter, 0.5)
        sgd = torch.optim.SGD(self.model.parameters(), lr=0.0)
        self.optimizer = hvd.DistributedOptimizer(sgd, self.model.named_parameters(), op=hvd.Sum)

    def __call__(self, step):
        self.optimizer.zero_grad()
        self.model(torch.full((1, 300), float(hvd.rank() + 1))).sum().backward()
        self.optimizer.step()
        size = hvd.size()
        assert (self.model[0].weight.grad == 0.5 * size * (size + 1) / 2).all()


def rank(phase):
    errors, is_new = [], True
    while True:
        try:
            hvd.init()
            is_new = False
            membership = PROCESS.session.membership
            do = Gradients() if phase == "gradients" else globals()[phase]
            step = 0
            while True:
                do(step)
                if step == 0:
                    say(good=membership.generation, rank=hvd.rank(), errors=errors, **resources())
                    errors = []
                step += 1
        except BaseException as error:
            # Nobody begins anew for a script that has not come so far.
            if is_new or not isinstance(error, hvd.HorovodInternalError):
                say(failed=f"{type(error).__name__}: {error}")
                raise
            errors.append(str(error))
        do = None
        hvd.shutdown()


rank(sys.argv[1])
