"""What scripts do around a sharded optimizer, and what is refused: nothing is ever applied twice."""

import torch
from ranks import RANK, SIZE, hvd
from refusals import refused
from refusals import refused_everywhere as fails
from torch import nn

from ringleader.engine.exceptions import HorovodInternalError

torch.set_default_dtype(torch.float64)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(9, 31), nn.Tanh(), nn.Linear(31, 3))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def wrap(model, shard, make=sgd, **more):
    return hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), shard=shard, **more)


def batch(step):
    return torch.randn(4, 9, generator=torch.Generator().manual_seed(100 * step + RANK))


def step(model, optimizer, number):
    optimizer.zero_grad()
    model(batch(number)).square().mean().backward()
    optimizer.step()


def values(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def compare(script, what, **more):
    """Run a script with a whole and with a sharded optimizer; the parameters are the same."""
    found = []
    for shard in (False, True):
        model = net()
        optimizer = wrap(model, shard, **more)
        found.append((script(model, optimizer), values(model)))
    (told, want), (mine, got) = found
    assert torch.allclose(got, want, rtol=1e-12, atol=1e-12), (what, (got - want).abs().max())
    assert len(set(hvd.allgather_object(got.numpy().tobytes()))) == 1, what
    assert told is None or torch.allclose(mine, told, rtol=1e-12, atol=1e-12), what


# what `tests/sequences` does not draw for sharded ones


def loaded_on_one(model, optimizer):
    step(model, optimizer, 0)
    if RANK == 0:
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(0.01)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    step(model, optimizer, 1)


def read_between(model, optimizer):
    found = []
    for number in range(3):
        optimizer.zero_grad()
        model(batch(number)).square().mean().backward()
        optimizer.synchronize()
        found.append(torch.cat([p.grad.reshape(-1).clone() for p in model.parameters()]))
        for p in model.parameters():
            p.grad = p.grad * 2
        with optimizer.skip_synchronize():
            optimizer.step()
    return torch.stack(found)


def steps(model, optimizer):
    for number in range(3):
        step(model, optimizer, number)


def missing(model, optimizer):
    for number in range(3):
        optimizer.zero_grad()
        if RANK != SIZE - 1:
            model(batch(number)).square().mean().backward()
        optimizer.step()


def scaled(model, optimizer):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    skipped = 0
    for number in range(5):
        optimizer.zero_grad()
        loss = model(batch(number)).square().mean()
        if number == 2 and RANK == SIZE - 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        before = values(model).clone()
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        skipped += torch.equal(before, values(model))
        scaler.update()
    assert skipped == 1
    return torch.tensor(scaler.get_scale())


def with_hooks(model, optimizer):
    seen = []
    optimizer.register_step_pre_hook(lambda one, *_: seen.append(one is optimizer))
    optimizer.register_step_post_hook(lambda one, *_: seen.append(one is optimizer))
    step(model, optimizer, 0)
    assert seen == [True, True], seen
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=5)
    for number in range(4):
        step(model, optimizer, number)
        rate.step()
        optimizer.param_groups[0]["weight_decay"] = 0.01 * number


for script in (loaded_on_one, read_between, missing, scaled, with_hooks):
    compare(script, script.__name__)
compare(scaled, "fused", make=lambda p: torch.optim.AdamW(p, lr=0.01, fused=True))
compare(steps, "predivided", gradient_predivide_factor=3.0)

# so few elements that some ranks own none, and groups of which a rank has nothing
found = []
for shard in (False, True):
    torch.manual_seed(0)
    tiny = nn.Linear(9, 4)
    groups = [{"params": [tiny.weight]}, {"params": [tiny.bias], "lr": 0.3}]
    optimizer = hvd.DistributedOptimizer(torch.optim.AdamW(groups, lr=0.1), shard=shard)
    steps(tiny, optimizer)
    assert len(optimizer.state_dict()["state"]) == 2
    found.append(values(tiny))
assert torch.allclose(*found, rtol=1e-12, atol=1e-12)

# a parameter in two places is one parameter
model = net()
model.append(nn.Linear(3, 31, bias=False))
model[3].weight = nn.Parameter(torch.ones(31, 3))
model.append(nn.Linear(31, 3, bias=False))
model[4].weight = model[2].weight
optimizer = wrap(model, True)
step(model, optimizer, 0)
assert model[4].weight is model[2].weight
if SIZE > 1:
    whole = nn.Parameter(torch.zeros(8))
    two = nn.Parameter(torch.zeros(4))
    two.data = whole.data[2:6]
    fails(ValueError, lambda: hvd.DistributedOptimizer(sgd([whole, two]), shard=True), "share memory")

if SIZE > 1:
    # gradients of the last step that are added to
    model = net()
    optimizer = wrap(model, True)
    steps(model, optimizer)
    fails(RuntimeError, lambda: model(batch(1)).square().mean().backward(), "zero_grad()")
    step(model, optimizer, 1)
    with optimizer.no_sync():
        fails(RuntimeError, optimizer.step, "no_sync()")
    with optimizer.skip_synchronize():
        fails(RuntimeError, optimizer.step, "skip_synchronize()", "synchronize()")
    step(model, optimizer, 2)
    total = hvd.DistributedOptimizer(sgd(net().parameters()), shard=True)
    assert total.clip_grad_norm_(1.0) == 0.0
    # a graph that was made before the step does not go through backward after it
    loss = (model(batch(3)) ** 2).mean()
    step(model, optimizer, 3)
    fails(RuntimeError, loss.backward, "modified by an inplace operation")
    # a model that is converted after the optimizer was made: on all ranks alike, or it is an error on all
    optimizer.zero_grad()
    model.float()
    optimizer.step()
    assert all(p.dtype == torch.float32 for p in model.parameters())
    optimizer.zero_grad()
    if RANK == 1:
        model.double()
    fails(ValueError, optimizer.step, "differ between rank 0 and rank 1", "float64", "float32")

# what does not treat every element by itself


class Lars(torch.optim.SGD):
    """Its rate depends on the norm of a whole parameter."""


class Own(torch.optim.Optimizer):
    """A script's own optimizer, which treats every element by itself and says so."""

    elementwise = True

    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                mean.lerp_(p.grad, 0.3)
                p.sub_(mean.sign() * group["lr"])


class Rows(Own):
    """Says so, but keeps a number per row."""

    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["rows"] = torch.zeros(3)


compare(steps, "own", make=Own)
kinds = [Lars, torch.optim.LBFGS, torch.optim.SparseAdam]
kinds += [getattr(torch.optim, name) for name in ("Adafactor", "Muon") if hasattr(torch.optim, name)]
for kind in kinds:
    matrix = [nn.Parameter(torch.zeros(4, 4))]
    fails(ValueError, lambda k=kind, m=matrix: hvd.DistributedOptimizer(k(m), shard=True), kind.__name__)  # type: ignore[misc]
for more, word in (
    ({"op": hvd.Adasum}, "Adasum"),
    ({"op": hvd.Max}, "Max"),
    ({"sparse_as_dense": True}, "sparse"),
    ({"compression": hvd.Compression.powersgd(2)}, "compression"),
):
    fails(ValueError, lambda m=more: wrap(net(), True, **m), word)
if SIZE > 1:
    model = net()
    fails(ValueError, lambda: step(model, wrap(model, True, make=Rows), 0), "rows", "Rows")
    words = nn.Embedding(11, 9, sparse=True)
    model = nn.Sequential(words, nn.Linear(9, 3))
    optimizer = wrap(model, True)

    def sparse():
        model(torch.tensor([1, 2])).square().mean().backward()
        optimizer.step()

    fails(ValueError, sparse, "sparse", "0.weight")

    # ranks that are not of one mind
    fails(ValueError, lambda: wrap(net(), RANK == 0), "settings differ")
    for make in (
        lambda p: (torch.optim.SGD if RANK else torch.optim.AdamW)(p, lr=0.1),
        lambda p: torch.optim.SGD([{"params": [one]} for one in p] if RANK else list(p), lr=0.1),
    ):
        model = net()
        optimizer, before = wrap(model, True, make=make), values(model)
        fails(ValueError, lambda m=model, o=optimizer: step(m, o, 0), "differ between rank 0 and rank 1")
        assert torch.equal(values(model), before)
    model = net()
    optimizer = wrap(model, True)
    step(model, optimizer, 0)
    if RANK:
        refused((HorovodInternalError, ValueError, RuntimeError), lambda: step(model, optimizer, 1), "join")
    hvd.join()
print("rank done", flush=True)
