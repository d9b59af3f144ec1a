"""Results of every call that makes one, kept or dropped in an order of each rank's own: none changes later.

Arguments: a seed, and the number of steps.
"""

import random
import sys

import numpy
import torch

import ringleader.torch as hvd
from ringleader.adapters.array_operations import ALLREDUCE
from ringleader.torch.recycled_storages import TENSORS

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
SEED, STEPS = int(sys.argv[1]), int(sys.argv[2])
COUNTS = (1000, 65_536, 300_000)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int32)

together, own = random.Random(SEED), random.Random((SEED + 1) * 1000 + RANK)
held: list[tuple[object, int]] = []


def check() -> None:
    for result, want in held:
        assert (result == want).all(), (want, result)


def keep(result: object, want: int) -> None:
    """Hold a result, a view, an array of its memory, or nothing of it."""
    way = own.randrange(6)
    if way < 3 and isinstance(result, torch.Tensor):
        plain = result.detach()
        alias = plain.float() if plain.dtype is torch.bfloat16 and way == 1 else plain
        held.append(((alias, alias.view(-1)[7:], torch.from_dlpack(alias))[way], want))
    elif way < 2:
        held.append((result, want))
    for _ in range(own.randrange(3)):
        if held:
            held.pop(own.randrange(len(held)))


for step in range(STEPS):
    count, dtype = together.choice(COUNTS), together.choice(DTYPES)
    base = step % 50
    # Every average, sum and greatest value below is a whole number that all types hold exactly.
    mine = torch.full((count,), base + 2 * RANK, dtype=dtype)
    average, total = base + SIZE - 1, SIZE * base + SIZE * (SIZE - 1)
    call = together.randrange(7)
    if call == 0:
        keep(hvd.allreduce(mine), average)
    elif call == 1:
        keep(hvd.allreduce(mine, name=f"n{count}.{dtype}", op=hvd.Sum), total)
    elif call == 2:
        handles = [hvd.allreduce_async(mine, name=f"a{at}") for at in range(3)]
        for handle in handles:
            keep(hvd.synchronize(handle), average)
    elif call == 3:
        for result in hvd.grouped_allreduce([mine, mine[: count // 2], mine]):
            keep(result, average)
    elif call == 4:
        keep(hvd.broadcast(mine, SIZE - 1), base + 2 * (SIZE - 1))
    elif call == 5 and dtype.is_floating_point:
        result = hvd.allreduce(mine.requires_grad_(), op=hvd.Sum)
        result.sum().backward()
        keep(result, total)
        assert mine.grad is not None
        assert (mine.grad == SIZE).all()
    else:
        array = numpy.full(count, base + 2 * RANK, "float32")
        keep(ALLREDUCE.run(array, None, hvd.global_process_set, hvd.Average), average)
    check()
assert TENSORS.nbytes <= 2 * sum(3 * count * 8 for count in COUNTS)
print("rank done", flush=True)
hvd.shutdown()
