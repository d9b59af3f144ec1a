"""Training with the distributed optimizer equals training on one rank, and what goes around it."""

import warnings

import torch
from ranks import RANK, SIZE, hvd
from refusals import refused

from ringleader.torch.basics import session

STEPS, PER_RANK = 50, 6


def net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(12, 33), torch.nn.Tanh(), torch.nn.Linear(33, 5))


def train(model, optimizer, rank=None, passes=1):
    """Train on global batches, or on one rank's part of them."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(STEPS):
        batch = torch.randn(PER_RANK * SIZE, 12, generator=generator)
        optimizer.zero_grad()
        for part in (batch if rank is None else batch[rank::SIZE]).chunk(passes):
            (model(part).square().mean() / passes).backward()
        optimizer.step()
    return torch.cat([p.detach().view(-1) for p in model.parameters()])


def distributed(make, seed=0, **settings):
    model = net(seed)
    hvd.broadcast_parameters(model.state_dict(), 0)
    return model, hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), **settings)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def worst(one, two):
    return (one - two).abs().max().item()


# Ranks begin differently; the broadcast makes them equal to rank 0.
for make, settings, bound in (
    (sgd, {}, 1e-5),
    (adam, {}, 1e-5),
    (sgd, {"bucket_cap_mb": 0.0001, "backward_passes_per_step": 2}, 1e-5),
    (sgd, {"bucket_cap_mb": 0.0001, "compression": hvd.Compression.fp16}, 2e-2),
):
    alone = net()
    want = train(alone, make(alone.parameters()))
    model, optimizer = distributed(make, seed=RANK, **settings)
    got = train(model, optimizer, RANK, passes=settings.get("backward_passes_per_step", 1))
    assert worst(got, want) < bound, (settings, worst(got, want))
    assert len(set(hvd.allgather_object(got.numpy().tobytes()))) == 1, settings
lonely = net()
local = train(lonely, adam(lonely.parameters()), RANK)
assert SIZE == 1 or worst(local, want) > 1e-3, "without the exchange this test must fail"

# Steps out of their order; gradients are in the engine's memory.
model, optimizer = distributed(sgd)
model(torch.ones(1, 12)).sum().backward()
if SIZE > 1 and session().membership is None:
    refused(AssertionError, optimizer.zero_grad)
optimizer.step()
if SIZE > 1 and session().engine.transport.name in ("window", "hosts"):
    assert all(bucket.region.segment is not None for bucket in optimizer._exchanger.buckets)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    optimizer.zero_grad()
    model(torch.ones(1, 12)).sum().backward()
    optimizer.synchronize()
    optimizer.step()
assert len([one for one in caught if "skip_synchronize" in str(one.message)]) == 1

# The state of an optimizer, with the types of its options.
model, betas = net(), (0.8, 0.9 if RANK == 0 else 0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.5 if RANK == 0 else 0.1, betas=betas)
if RANK == 0:
    train(model, optimizer, RANK)
hvd.broadcast_optimizer_state(optimizer, 0)
group = optimizer.param_groups[0]
assert (group["lr"], group["betas"]) == (0.5, (0.8, 0.9)) and type(group["betas"]) is tuple
assert [float(state["step"]) for state in optimizer.state.values()] == [STEPS] * 4
sums = [float(state["exp_avg"].double().sum()) for state in optimizer.state.values()]
assert len(set(hvd.allgather_object(tuple(sums)))) == 1

# Models that differ are an error on every rank, and the job stays usable.
if SIZE > 1:
    other = torch.nn.Linear(3, 4 + RANK)

    def differing():
        wrong = hvd.DistributedOptimizer(torch.optim.SGD(other.parameters(), lr=1), other.named_parameters())
        if session().membership is not None:  # ranks of an elastic job meet at the first step
            other(torch.ones(1, 3)).sum().backward()
            wrong.step()

    refused(ValueError, differing, "differ between rank 0 and rank 1")

# Gradients outlive the engine, and training continues in its next life.
model, optimizer = distributed(sgd)
for _life in range(2):
    optimizer.zero_grad()
    (model(torch.ones(1, 12)).sum() * (RANK + 1)).backward()
    optimizer.step()
    assert torch.allclose(model[2].bias.grad, torch.full((5,), (SIZE + 1) / 2))
    kept = [p.grad.clone() for p in model.parameters()]
    hvd.shutdown()
    assert all(torch.equal(p.grad, one) for p, one in zip(model.parameters(), kept, strict=True))
    hvd.init()
print("rank done", flush=True)
