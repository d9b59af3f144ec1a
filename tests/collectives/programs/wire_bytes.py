"""How many bytes leave each host for one exchange of 64 MiB, as the host's network devices count them."""

from pathlib import Path

import torch

import ringleader.torch as hvd

ELEMENTS = 16 << 20
"""64 MiB of float32."""


def sent():
    """Bytes that have left this host so far; its own loopback device is no way out of it."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    devices = {name.strip(): numbers.split() for name, numbers in (line.split(":", 1) for line in lines)}
    return sum(int(numbers[8]) for name, numbers in devices.items() if name != "lo")


def measured(what, exchange):
    """Print the bytes of one exchange, and how many there have to be: 2(H-1)/H of the array."""
    exchange()
    hvd.barrier()
    before = sent()
    hvd.barrier()
    exchange()
    hvd.barrier()
    after = sent()
    hvd.barrier()
    hosts = hvd.size() // hvd.local_size()
    least = 2 * (hosts - 1) / hosts * ELEMENTS * 4
    if hvd.local_rank() == 0:
        print(
            f"{what} on host {hvd.cross_rank()}: {(after - before) / least:.4f} times the least", flush=True
        )


hvd.init()
array = torch.full((ELEMENTS,), float(hvd.rank()))
measured("allreduce", lambda: hvd.allreduce_(array, op=hvd.Max, name="array"))
assert (array == hvd.size() - 1).all()

model = torch.nn.Linear(4096, ELEMENTS // 4096, bias=False)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model.named_parameters())
ones = torch.ones(1, 4096)


def step():
    optimizer.zero_grad()
    (model(ones).sum() * (hvd.rank() + 1)).backward()
    optimizer.step()


measured("step", step)
assert (model.weight.grad == (hvd.size() + 1) / 2).all()
print("rank done", flush=True)
