"""A training with bucket sizes on trial: the same gradients as without, and no memory left behind.

Rank 0 says what it chose. With ``join`` rank 1 runs out of data during the trials, which then end.
"""

import sys

import torch
from ranks import RANK, SIZE, hvd

from ringleader.adapters.autotune import CANDIDATES
from ringleader.torch.basics import session

torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(700, 700) for _ in range(3)))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model.named_parameters())
batch = torch.ones(2, 700)
SMALL = [torch.ones(count) for count in (200, 3000, 10_000, 50_000)]
counts = set()


def step() -> None:
    optimizer.zero_grad()
    (model(batch).sum() * (RANK + 1)).backward()
    optimizer.step()
    counts.add(optimizer._exchanger.count)


def checked(turn: int) -> None:
    step()
    got = model[-1].bias.grad
    assert torch.equal(got, torch.full_like(got, 2 * (SIZE + 1) / 2)), turn
    small = SMALL[turn % len(SMALL)]
    handle = hvd.allreduce_async(small, name="small", op=hvd.Sum)
    assert torch.equal(hvd.allreduce(small, op=hvd.Sum), small * SIZE), turn
    assert torch.equal(hvd.synchronize(handle), small * SIZE), turn


def segments() -> int:
    return len(session().group.comms.segments)


checked(0)
# Two operations that are pending together share memory from then on; above that depends on the ranks' speed.
hvd.grouped_allreduce(SMALL[:2], op=hvd.Sum)
tuner = optimizer._autotune  # ranks of an elastic job meet at the first step
if sys.argv[1:] == ["join"]:
    for turn in range(10):
        checked(turn)
    for _turn in range(20 * (RANK == 0)):
        step()
    hvd.join()
    assert tuner.over
    caps = tuner.cap_bytes
    for turn in range(10):
        checked(turn)
    assert tuner.cap_bytes == caps
else:
    before = segments()
    for turn in range(8 * len(CANDIDATES)):
        checked(turn)
    assert counts == {1, 3}, counts  # 6 MB of gradients: in one bucket, or one for each layer
    assert tuner.over
    assert segments() == before, "trials left memory behind"
agreed = hvd.allgather_object(tuner.cap_bytes)
assert len(set(agreed)) == 1, agreed
print("rank done", flush=True)
