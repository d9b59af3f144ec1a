"""The state of a sharded optimizer: gathered, loaded, broadcast; kept over frozen parameters, new lives."""

import copy
import io
import pickle

import torch
from ranks import RANK, SIZE, hvd
from refusals import refused_everywhere as fails
from torch import nn

torch.set_default_dtype(torch.float64)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(9, 31), nn.Tanh(), nn.Linear(31, 31), nn.Tanh(), nn.Linear(31, 3))


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def wrap(model, shard=True, make=adam, **more):
    return hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), shard=shard, **more)


def steps(model, optimizer, count, seed=0):
    generator = torch.Generator().manual_seed(100 * seed + RANK)
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(4, 9, generator=generator)).square().mean().backward()
        optimizer.step()


def values(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def alike(model, other, what):
    assert torch.allclose(values(model), values(other), rtol=1e-9, atol=1e-12), what
    assert len(set(hvd.allgather_object(values(model).numpy().tobytes()))) == 1, what


def pair():
    """Return a model and its optimizer, whole and sharded, after the same steps."""
    whole, parts = net(), net()
    both = (whole, wrap(whole, shard=False)), (parts, wrap(parts))
    for model, optimizer in both:
        steps(model, optimizer, 5)
    return both


def loaded(state, shard):
    """Return a model and an optimizer that continue from the whole one's parameters and a state."""
    model = net()
    model.load_state_dict(whole.state_dict())
    optimizer = wrap(model, shard=shard)
    optimizer.load_state_dict(copy.deepcopy(state))
    return model, optimizer


# state_dict is that of the whole optimizer, and each of the two loads the other's
(whole, reference), (parts, optimizer) = pair()
saved, of_parts = copy.deepcopy(reference.state_dict()), optimizer.state_dict()
buffer = io.BytesIO()
torch.save(of_parts, buffer)
assert len(buffer.getvalue()) < 3 * 8 * sum(p.numel() for p in parts.parameters()) + 20_000
buffer = io.BytesIO()
torch.save(parts[4].bias, buffer)
assert len(buffer.getvalue()) < 3000, "a parameter is saved with the memory of all others"
if SIZE > 1:
    everything = sum(v.nbytes for state in of_parts["state"].values() for v in state.values())
    assert max(hvd.allgather_object(optimizer.state_bytes())) < everything * (1 / SIZE + 0.05)
again, want = loaded(saved, shard=False)
steps(again, want, 3, seed=1)
for state, shard in ((saved, True), (of_parts, True), (of_parts, False)):
    model, fresh = loaded(state, shard)
    steps(model, fresh, 3, seed=1)
    alike(model, again, shard)

# before the wrapping, as scripts do
model = net()
model.load_state_dict(whole.state_dict())
plain = adam(model.parameters())
plain.load_state_dict(copy.deepcopy(saved))
optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), shard=True)
steps(model, optimizer, 3, seed=1)
alike(model, again, "loaded before")

# a checkpoint that one rank has
model = net()
optimizer = wrap(model)
steps(model, optimizer, 2)
if RANK == SIZE - 1:
    model.load_state_dict(whole.state_dict())
    optimizer.load_state_dict(copy.deepcopy(saved))
hvd.broadcast_parameters(model.state_dict(), SIZE - 1)
hvd.broadcast_optimizer_state(optimizer, SIZE - 1)
steps(model, optimizer, 3, seed=1)
alike(model, again, "broadcast")
hvd.broadcast_optimizer_state(optimizer, 0)
steps(model, optimizer, 1, seed=2)
steps(again, want, 1, seed=2)
alike(model, again, "broadcast of parts")

if SIZE > 1:
    # one rank alone has loaded: nobody moves, and the same state on all ranks cures it
    before = values(model).clone()
    good = copy.deepcopy(optimizer.state_dict())
    if RANK == 0:
        optimizer.load_state_dict(copy.deepcopy(saved))
    fails(ValueError, lambda: steps(model, optimizer, 1, seed=3), "state differs between rank 0 and rank 1")
    assert torch.equal(values(model), before)
    fails(ValueError, optimizer.state_dict, "state differs between rank 0 and rank 1")
    optimizer.load_state_dict(good)
    steps(model, optimizer, 1, seed=3)
    steps(again, want, 1, seed=3)
    alike(model, again, "after the cure")
    # other content on each rank
    other = copy.deepcopy(saved)
    other["state"][0]["exp_avg"] += RANK
    optimizer.load_state_dict(other)
    before = values(model).clone()
    fails(ValueError, lambda: steps(model, optimizer, 1), "state differs")
    assert torch.equal(values(model), before)

# of another model
small = torch.optim.AdamW([nn.Parameter(torch.zeros(3))])
small.param_groups[0]["params"][0].grad = torch.ones(3)
small.step()
fails(ValueError, lambda: wrap(net()).load_state_dict(small.state_dict()), "another model", "[1]", "[6]")
odd = copy.deepcopy(saved)
odd["state"][0]["exp_avg"] = torch.zeros(31, 8)
model = net()
optimizer = wrap(model)
fails(ValueError, lambda: optimizer.load_state_dict(odd), "exp_avg", "[31, 9]", "[31, 8]")
steps(model, optimizer, 1)

# no copies
if SIZE > 1:
    fails(TypeError, lambda: pickle.dumps(optimizer), "state_dict()")
    fails(TypeError, lambda: copy.deepcopy(optimizer), "state_dict()")

# frozen, thawed, added: the state stays that of each parameter
if SIZE > 1:
    model, extra = net(), nn.Linear(3, 3)
    optimizer = wrap(model)
    for frozen in (False, True, False):
        model[2].requires_grad_(not frozen)
        for p in model[2].parameters():
            p.grad = None
        steps(model, optimizer, 3)
    optimizer.add_param_group({"params": list(extra.parameters()), "lr": 0.1})
    model.append(extra)
    steps(model, optimizer, 3)
    counts = [float(state["step"]) for state in optimizer.state_dict()["state"].values()]
    assert counts == [12, 12, 9, 9, 12, 12, 3, 3], counts

# a new life of the ranks
(whole, reference), (parts, optimizer) = pair()
hvd.shutdown()
before = values(parts).clone()
hvd.init()
assert torch.equal(values(parts), before)
steps(parts, optimizer, 2, seed=1)
steps(whole, reference, 2, seed=1)
alike(parts, whole, "new life")
print("rank done", flush=True)
