"""Training with the distributed optimizer equals training on one rank. argv: ranks per host or 0."""

import hashlib
import warnings

import torch

import ringleader.torch as hvd
from ringleader.torch.basics import session

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
torch.set_num_threads(1)
STEPS, PER_RANK = 50, 6


def net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(12, 33), torch.nn.Tanh(), torch.nn.Linear(33, 5))


def batches(rank=None):
    """Global batches, or one rank's part of them."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(STEPS):
        batch = torch.randn(PER_RANK * SIZE, 12, generator=generator)
        yield batch if rank is None else batch[rank::SIZE]


def train(model, optimizer, rank=None, passes=1):
    for batch in batches(rank):
        optimizer.zero_grad()
        for part in batch.chunk(passes):
            (model(part).square().mean() / passes).backward()
        optimizer.step()
    return torch.cat([p.detach().view(-1) for p in model.parameters()])


def same_everywhere(parameters):
    digest = hashlib.sha256(parameters.numpy().tobytes()).hexdigest()
    assert len(set(hvd.allgather_object(digest))) == 1


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


for make in (sgd, adam):
    alone = net()
    want = train(alone, make(alone.parameters()))
    # Ranks begin differently; the broadcast makes them equal to rank 0.
    model, optimizer = distributed(make, seed=RANK)
    assert isinstance(optimizer, type(make(net().parameters())))
    got = train(model, optimizer, RANK)
    assert worst(got, want) < 1e-5, worst(got, want)
    same_everywhere(got)
    lonely = net()
    local = train(lonely, make(lonely.parameters()), RANK)
    assert SIZE == 1 or worst(local, want) > 1e-3, "without the exchange this test must fail"

# Several passes, a split division, a smaller type on the wire.
alone = net()
want = train(alone, sgd(alone.parameters()))
for settings, bound in (
    ({"backward_passes_per_step": 2}, 1e-5),
    ({"gradient_predivide_factor": 2.0}, 1e-5),
    ({"compression": hvd.Compression.fp16}, 2e-2),
    ({"bucket_cap_mb": 0.0001}, 1e-5),
    ({"bucket_cap_mb": 0.0001, "compression": hvd.Compression.fp16, "backward_passes_per_step": 2}, 2e-2),
):
    model, optimizer = distributed(sgd, **settings)
    got = train(model, optimizer, RANK, passes=settings.get("backward_passes_per_step", 1))
    assert worst(got, want) < bound, (settings, worst(got, want))
    same_everywhere(got)

# Gradients are in the engine's memory before and after backward, and return when set to None.
model, optimizer = distributed(sgd)
if session().membership is not None:  # ranks of an elastic job meet at the first step
    model(torch.ones(1, 12)).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
homes = (
    [(h.values.data_ptr(), h.values.numel() * 4) for h in optimizer._exchanger.buckets] if SIZE > 1 else []
)


def inside():
    if SIZE == 1:
        return True
    starts = [p.grad.data_ptr() for p in model.parameters()]
    return all(any(at <= start < at + room for at, room in homes) for start in starts)


if session().engine.transport.name in ("window", "hosts"):
    assert all(bucket.region.segment is not None for bucket in optimizer._exchanger.buckets)
model(torch.ones(1, 12)).sum().backward()
assert inside()
try:
    optimizer.zero_grad()
except AssertionError:
    pass
else:
    assert SIZE == 1, "zero_grad between backward and step went through"
optimizer.step()
optimizer.zero_grad(set_to_none=False)
assert inside() and (SIZE == 1 or all(not p.grad.any() for p in model.parameters()))
optimizer.zero_grad()
assert all(p.grad is None for p in model.parameters())
for p in model.parameters():
    p.grad = None
(model(torch.ones(1, 12)).sum() * (RANK + 1)).backward()
assert inside()
optimizer.synchronize()
assert torch.allclose(model[2].bias.grad, torch.full((5,), (SIZE + 1) / 2))
with optimizer.skip_synchronize():
    optimizer.step()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    optimizer.zero_grad()
    model(torch.ones(1, 12)).sum().backward()
    optimizer.synchronize()
    optimizer.step()
assert len([one for one in caught if "skip_synchronize" in str(one.message)]) == 1

# A parameter without a gradient on some ranks counts as zero there.
model, optimizer = distributed(sgd)
optimizer.zero_grad()
(model if RANK == 0 else model[0])(torch.ones(1, 12)).sum().backward()
optimizer.synchronize()
assert torch.allclose(model[2].bias.grad, torch.full((5,), 1 / SIZE))
assert len(set(hvd.allgather_object(tuple(model[0].bias.grad.tolist())))) == 1

# The state of an optimizer, with the types of its options.
model = net()
optimizer = torch.optim.Adam(
    model.parameters(), lr=0.5 if RANK == 0 else 0.1, betas=(0.8, 0.9 if RANK == 0 else 0.1)
)
if RANK == 0:
    train(model, optimizer, RANK)
hvd.broadcast_optimizer_state(optimizer, 0)
group = optimizer.param_groups[0]
assert (group["lr"], group["betas"]) == (0.5, (0.8, 0.9)) and type(group["betas"]) is tuple
steps = [float(state["step"]) for state in optimizer.state.values()]
assert steps == [STEPS] * 4
sums = [float(state["exp_avg"].double().sum()) for state in optimizer.state.values()]
assert len(set(hvd.allgather_object(tuple(sums)))) == 1

# Models that differ are an error on every rank, and the job stays usable.
if SIZE > 1:
    other = torch.nn.Linear(3, 4 + RANK)
    try:
        wrong = hvd.DistributedOptimizer(torch.optim.SGD(other.parameters(), lr=1), other.named_parameters())
        if session().membership is not None:
            other(torch.ones(1, 3)).sum().backward()
            wrong.step()
    except ValueError as error:
        assert "differ between rank 0 and rank 1" in str(error)
    else:
        raise AssertionError("different models went through")
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE

# Wrong arguments.
for wrong in (
    {"backward_passes_per_step": 0},
    {"gradient_predivide_factor": 2.0, "op": hvd.Sum},
    {"named_parameters": [("a", model[0].weight), ("a", model[0].bias)]},
    {"named_parameters": [("a", model[0].weight)]},
    {"named_parameters": list(model.parameters())},
):
    try:
        hvd.DistributedOptimizer(sgd(model.parameters()), **wrong)
    except ValueError:
        pass
    else:
        raise AssertionError(f"went through: {wrong}")

# Gradients outlive the engine, and training continues in its next life.
model, optimizer = distributed(sgd)
optimizer.zero_grad()
model(torch.ones(1, 12)).sum().backward()
optimizer.step()
kept = [p.grad.clone() for p in model.parameters()]
outside = model[0].weight.grad
hvd.shutdown()
assert all(torch.equal(p.grad, one) for p, one in zip(model.parameters(), kept, strict=True))
assert torch.isfinite(outside).all()
hvd.init()
optimizer.zero_grad()
(model(torch.ones(1, 12)).sum() * (RANK + 1)).backward()
optimizer.step()
assert torch.allclose(model[2].bias.grad, torch.full((5,), (SIZE + 1) / 2))
print("rank done", flush=True)
