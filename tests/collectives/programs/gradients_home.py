"""Gradients are in memory that the ranks of a host share, whatever a script does to them.

argv: "shared", or "own" where they must not. The kernel's own list of this process's memory tells, not the
engine.
"""

import sys
from pathlib import Path

import torch

import ringleader.torch as hvd

SHARED = sys.argv[1] == "shared"


def shared_ranges():
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, *_, path = [*line.split(maxsplit=5), ""][:6]
        if rights.endswith("s") and path.startswith("/dev/shm/"):
            start, stop = (int(word, 16) for word in span.split("-"))
            found.append((start, stop))
    return found


def check(parameters, when):
    ranges = shared_ranges()
    for number, parameter in enumerate(parameters):
        start = parameter.grad.data_ptr()
        stop = start + parameter.grad.numel() * parameter.grad.element_size()
        inside = any(first <= start and stop <= last for first, last in ranges)
        assert inside == SHARED, f"gradient {number} {when}: {'in' if inside else 'not in'} shared memory"


hvd.init()
for settings in ({}, {"bucket_cap_mb": 0.05}, {"backward_passes_per_step": 2}):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Tanh(), torch.nn.Linear(200, 3))
    unused = torch.nn.Linear(40, 7)
    used = list(net.parameters())
    parameters = [*used, *unused.parameters()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.01), **settings)
    for step in range(4):
        optimizer.zero_grad(set_to_none=step != 1)
        if step == 1:
            check(parameters, f"before backward {step} with {settings}")
        for part in range(settings.get("backward_passes_per_step", 1)):
            net(torch.ones(5, 300) * (hvd.rank() + part + 1)).square().mean().backward()
        check(used, f"after backward {step} with {settings}")
        optimizer.synchronize()
        check(parameters, f"after the exchange {step} with {settings}")
        total = sum(float(p.grad.double().sum()) for p in parameters)
        assert total != 0
        assert len(set(hvd.allgather_object(total))) == 1
        with optimizer.skip_synchronize():
            optimizer.step()
        check(parameters, f"after step {step} with {settings}")
    assert not unused.weight.grad.any()
print("rank done", flush=True)
