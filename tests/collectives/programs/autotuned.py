"""A training with bucket sizes on trial: the same gradients as without, and rank 0 says what it chose."""

import torch

import ringleader.torch as hvd
from ringleader.torch.autotune import CANDIDATES

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(700, 700) for _ in range(3)))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model.named_parameters())
batch = torch.ones(2, 700)
counts = set()
for turn in range(8 * len(CANDIDATES)):
    optimizer.zero_grad()
    (model(batch).sum() * (RANK + 1)).backward()
    optimizer.step()
    counts.add(optimizer._exchanger.count)
    got = model[-1].bias.grad
    assert torch.equal(got, torch.full_like(got, 2 * (SIZE + 1) / 2)), turn
assert counts == {1, 3}, counts  # 6 MB of gradients: in one bucket, or one for each layer
assert optimizer._autotune._trials.over
assert len({bytes(str(one), "ascii") for one in hvd.allgather_object(optimizer._autotune.cap_bytes)}) == 1
print("rank done", flush=True)
hvd.shutdown()
