"""The distributed optimizer where `tests/sequences` does not go, in float64 against one process.

Buckets, positional arguments, LBFGS, sparse gradients that come and go, pickles, Adasum, and what is refused.
"""

import copy
import pickle
import warnings

import torch
from ranks import RANK, SIZE, hvd
from refusals import refused
from torch.nn.functional import mse_loss

from ringleader.adapters.process_sets import global_process_set
from ringleader.engine.process_lifecycle import membership
from ringleader.torch.basics import session
from ringleader.torch.mpi_ops import Adasum

HOSTS = session().ranks.hosts
torch.set_default_dtype(torch.float64)
STEPS, PER_RANK = 6, 4


class Net(torch.nn.Module):
    """One layer is used twice, one by nobody, one only in some steps, and one is frozen."""

    def __init__(self, sparse=False):
        super().__init__()
        self.words = torch.nn.Embedding(11, 6, sparse=sparse)
        self.twice = torch.nn.Linear(6, 6)
        self.sometimes = torch.nn.Linear(6, 6)
        self.unused = torch.nn.Linear(5, 5)
        self.frozen = torch.nn.Linear(6, 6).requires_grad_(False)
        self.last = torch.nn.Linear(6, 3)

    def forward(self, x, step=0):
        x = self.twice(torch.tanh(self.twice(self.words(x))))
        x = self.sometimes(x) if step % 2 else x
        return self.last(torch.tanh(self.frozen(x)))


def net(**settings):
    torch.manual_seed(3)
    return Net(**settings)


def data(rank=None):
    generator = torch.Generator().manual_seed(7)
    for _ in range(STEPS):
        x = torch.randint(0, 11, (PER_RANK * SIZE,), generator=generator)
        y = torch.randn(PER_RANK * SIZE, 3, generator=generator)
        yield (x, y) if rank is None else (x[rank::SIZE], y[rank::SIZE])


def train(model, optimizer, rank=None, zeros=False):
    """Train; without a gradient means zero where ranks exchange, so that momentum continues."""
    for step, (x, y) in enumerate(data(rank)):
        optimizer.zero_grad()
        for p in model.parameters() if zeros else ():
            p.grad = torch.zeros_like(p) if p.requires_grad else None
        mse_loss(model(x, step), y).backward()
        optimizer.step()
    return values(model)


def values(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def plain_sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def close(got, want, what):
    worst = (got - want).abs().max().item()
    assert worst < 1e-10, (what, worst)
    alike(got, what)


def alike(got, what="", copies=1):
    assert len(set(hvd.allgather_object(got.detach().numpy().tobytes()))) == copies, what


def wrapped(model, make=sgd, **settings):
    return hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), **settings)


def met(optimizer):
    """Return it once it has synchronized with the other ranks: in an elastic job at the first step."""
    if membership() is not None:
        optimizer.step()
    return optimizer


reference = net()
WANT = train(reference, sgd(reference.parameters()), zeros=SIZE > 1)
model = net()
half = [p for name, p in model.named_parameters() if "twice" in name]
optimizer = wrapped(model, groups=[half], bucket_cap_mb=0.0003)
close(train(model, optimizer, RANK), WANT, "groups")
assert all(p.grad is None for p in model.frozen.parameters())
if SIZE > 1:
    homes = [optimizer._exchanger.bucket_of[optimizer._exchanger._index[id(p)]] for p in half]
    assert len(set(homes)) == 1
    assert sum(index == homes[0] for index in optimizer._exchanger.bucket_of.values()) == 2
    assert optimizer._exchanger._overlap == (HOSTS > 1)

# Horovod's positional order, and the older name of groups.
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = net()
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), None, hvd.Compression.none, 1, hvd.Average, 1.0, 2, None, False,
        global_process_set,
    )  # fmt: skip
    assert any(issubclass(one.category, DeprecationWarning) for one in caught)
assert len(set(optimizer._parameter_names.values())) == len(list(model.parameters()))
close(train(model, optimizer, RANK), WANT, "positional")

# Buckets are rebuilt once, in the order in which gradients really came on rank 0.
if HOSTS > 1:
    model = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(5)])
    optimizer = wrapped(model, bucket_cap_mb=0.0001)
    order = [2, 0, 4, 1, 3]
    for _ in range(2):
        optimizer.zero_grad()
        x = torch.ones(1, 4)
        for at in reversed(order):
            x = model[at](x)
        x.sum().backward()
        optimizer.step()
    placed = [at // 2 for at in optimizer._exchanger.order]
    assert list(dict.fromkeys(placed)) == order, placed

# A step in no_sync is this rank's alone.
x, y = next(data())
model = net()
optimizer = wrapped(model)
with optimizer.no_sync():
    (model(x).sum() * RANK).backward()
    optimizer.step()
alike(values(model), "no_sync", copies=SIZE)

# Closures: LBFGS sees the joint loss, so that it goes the same way on all ranks.
model, alone = net(), net()


def lbfgs(parameters):
    trained = [p for p in parameters if p.requires_grad]
    return torch.optim.LBFGS(trained, max_iter=8, line_search_fn="strong_wolfe")


def closure(model, optimizer, x, y):
    def evaluate():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        return loss

    return evaluate


optimizer, plain = wrapped(model, lbfgs), lbfgs(alone.parameters())
for _ in range(2):
    want = plain.step(closure(alone, plain, x, y))
    got = optimizer.step(closure(model, optimizer, x[RANK::SIZE], y[RANK::SIZE]))
    assert abs(want.item() - got.item()) < 1e-6, (want, got)
assert (values(model) - values(alone)).abs().max() < 1e-5
alike(values(model), "LBFGS")


# Sparse gradients travel as such, outside the buckets; sometimes a rank has none, sometimes a dense one.
def sparse_loss(model, step, rank, x, y):
    if step == 3 and rank == 0:
        return model.last(torch.ones(1, 6)).sum()
    loss = mse_loss(model(x[rank::SIZE], step), y[rank::SIZE])
    return loss + (model.words.weight * 0.5).sum() if step == 4 and rank == 0 else loss


for settings in ({}, {"bucket_cap_mb": 0.0003}):
    model, alone = net(sparse=True), net()
    optimizer, plain = wrapped(model, plain_sgd, **settings), plain_sgd(alone.parameters())
    for step, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        plain.zero_grad()
        for rank in range(SIZE):
            (sparse_loss(alone, step, rank, x, y) / SIZE).backward()
        sparse_loss(model, step, RANK, x, y).backward()
        optimizer.step()
        assert SIZE == 1 or model.words.weight.grad.is_sparse, (settings, step)
        plain.step()
    close(values(model), values(alone), f"sparse {settings}")
if SIZE > 1:
    assert optimizer._exchanger.sparse == {0: 1}
    assert optimizer._exchanger.places[0] is None

# Adam for sparse gradients, on ranks of which one meets other words than the others.
words = torch.nn.Embedding(10, 3, sparse=True)
hvd.broadcast_parameters(words.state_dict(), 0)
optimizer = wrapped(words, lambda p: torch.optim.SparseAdam(list(p), lr=0.1))
for _ in range(3):
    optimizer.zero_grad()
    words(torch.tensor([RANK, RANK + 1])).sum().backward()
    optimizer.step()
assert sorted(words.weight.grad.coalesce().indices()[0].tolist()) == list(range(SIZE + 1))
alike(values(words), "SparseAdam")

# What a script kept of averaged gradients stays, and gradients that it put elsewhere are exchanged.
model, alone = net(), net()
optimizer, plain, kept = wrapped(model, plain_sgd), plain_sgd(alone.parameters()), []
for x, y in data():
    optimizer.zero_grad()
    plain.zero_grad()
    mse_loss(model(x[RANK::SIZE]), y[RANK::SIZE]).backward()
    mse_loss(alone(x), y).backward()
    assert all(torch.equal(grad, before) for grad, before in kept)
    for p in [*model.parameters(), *alone.parameters()] if HOSTS == 1 else []:
        if p.grad is not None:
            p.grad.data = p.grad.data * 0.5
    optimizer.step()
    plain.step()
    kept = [(p.grad, p.grad.clone()) for p in model.parameters() if p.grad is not None]
close(values(model), values(alone), "kept and replaced")

# Pickles train on, and hooks of the script's are called once a step.
model = net()
model, optimizer = pickle.loads(pickle.dumps((model, wrapped(model))))
assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == "SGD"
calls = []
optimizer.register_step_post_hook(lambda *_: calls.append(1))
close(train(model, optimizer, RANK), WANT, "pickled")
assert len(calls) == STEPS

# What is refused.
model = net()
weights = list(model.parameters())
for wrong in (
    {"groups": 0},
    {"groups": "all"},
    {"groups": [weights[0]]},
    {"groups": [[weights[0]], [weights[0]]]},
    {"groups": [["words.weight"]]},
    {"num_groups": -2},
    {"compression": hvd.Compression.topk(0.1), "op": hvd.Max} if SIZE > 1 else {"groups": -1},
    {"backward_passes_per_step": 0},
    {"gradient_predivide_factor": 2.0, "op": hvd.Sum},
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused(ValueError, lambda settings=wrong: met(wrapped(model, **settings)))
for named in ([("a", weights[0]), ("a", weights[1])], [("a", weights[0])], weights):
    refused(ValueError, lambda named=named: hvd.DistributedOptimizer(sgd(weights), named_parameters=named))
if SIZE > 1:
    differ = "settings differ between rank 0 and rank 1"
    refused(ValueError, lambda: met(wrapped(model, bucket_cap_mb=1.0 + RANK)), differ)
    optimizer = met(wrapped(model))

    def two_passes():
        for _ in range(2):
            model(x).sum().backward()

    refused(AssertionError, two_passes, "more than backward_passes_per_step times")
    refused(AssertionError, optimizer.zero_grad, "was called after loss.backward()")
    optimizer.synchronize()
    optimizer.set_backward_passes_per_step(2)
    optimizer.zero_grad()
    two_passes()
    optimizer.step()

# What is changed while it is under way is an error, not a sum of some rank's old and another's new values.
for change in (lambda p: p.grad.mul_(0.5), lambda p: setattr(p, "grad", p.grad * 0.5)):
    layers = torch.nn.Sequential(torch.nn.Linear(12, 5), torch.nn.Linear(5, 1))
    optimizer = met(wrapped(layers, bucket_cap_mb=0.0002))
    if SIZE == 1 or not optimizer._exchanger._overlap:
        continue
    for turn in range(2):
        optimizer.zero_grad()
        layers(torch.ones(2, 12)).sum().backward()
        if turn == 0:
            optimizer.step()
    for p in layers.parameters():
        change(p)
    refused(RuntimeError, optimizer.synchronize, "optimizer.synchronize() before")
    hvd.barrier()

# Adasum: equal steps stay what they are, steps at right angles add up; so it is in copies and closures.
if SIZE & (SIZE - 1):
    refused(NotImplementedError, lambda: met(wrapped(model, op=Adasum)))
elif SIZE > 1:
    line = torch.nn.Linear(SIZE, 1, bias=False)
    torch.nn.init.zeros_(line.weight)
    optimizer = met(wrapped(line, lambda p: torch.optim.SGD(p, lr=1.0), op=Adasum))
    line(torch.ones(1, SIZE)).sum().backward()
    refused(AssertionError, optimizer.zero_grad)
    optimizer.step()
    assert torch.allclose(line.weight, -torch.ones(1, SIZE)), line.weight
    optimizer.zero_grad()
    line(torch.eye(SIZE)[RANK : RANK + 1]).sum().backward()
    optimizer.step()
    assert torch.allclose(line.weight, -2 * torch.ones(1, SIZE)), line.weight
    refused(AssertionError, optimizer.skip_synchronize, "not supported when using Adasum")
    line, optimizer = copy.deepcopy((line, optimizer))

    def evaluate():
        loss = line(torch.ones(1, SIZE)).sum()
        loss.backward()
        return loss

    for steps in (3, 4):  # what the closure computes is over with its step
        optimizer.zero_grad()
        optimizer.step(evaluate)
        assert torch.allclose(line.weight, -float(steps) * torch.ones(1, SIZE)), line.weight
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE
print("rank done", flush=True)
