"""Every argument of DistributedOptimizer trains as one process on the joint batch does, to 1e-10 in float64.

Also: what falls back, what is refused, copies and pickles, schedulers, closures.
"""

import copy
import io
import itertools
import pickle
import warnings

import torch
from refusals import refused
from torch.nn.functional import mse_loss

import ringleader.torch as hvd
from ringleader.adapters.process_sets import global_process_set
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.process_lifecycle import membership
from ringleader.torch.basics import session
from ringleader.torch.mpi_ops import Adasum

hvd.init(process_sets="dynamic")
RANK, SIZE = hvd.rank(), hvd.size()
HOSTS = session().ranks.hosts
torch.set_num_threads(1)
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


def train(model, optimizer, rank=None, passes=1, factor=1.0, before=None):
    for step, (x, y) in enumerate(data(rank)):
        if before:
            before(step, optimizer)
        else:
            optimizer.zero_grad()
        for a, b in zip(x.chunk(passes), y.chunk(passes), strict=True):
            (mse_loss(model(a, step), b) * factor / passes).backward()
        optimizer.step()
    return values(model)


def values(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def close(got, want, what):
    worst = (got - want).abs().max().item()
    assert worst < 1e-10, (what, worst)
    assert len(set(hvd.allgather_object(got.numpy().tobytes()))) == 1, what


def wrapped(model, make=sgd, **settings):
    return hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), **settings)


def met(optimizer):
    """Return it once it has synchronized with the other ranks: in an elastic job at the first step."""
    if membership() is not None:
        optimizer.step()
    return optimizer


reference = net()
WANT = train(reference, sgd(reference.parameters()))
# A parameter without a gradient counts as zero, so that momentum continues where plain PyTorch skips it.
moving = net()


def with_zeros(step, optimizer):
    optimizer.zero_grad()
    for p in moving.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p)


if SIZE > 1:
    WANT = train(moving, sgd(moving.parameters()), before=with_zeros)


def set_none(step, optimizer):
    """What scripts do to gradients between steps."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None if step % 3 == 0 or p.grad is None else torch.zeros_like(p)


def keep_zero(step, optimizer):
    optimizer.zero_grad(set_to_none=False)


model = net()
half = [p for name, p in model.named_parameters() if "twice" in name]
for settings, how in (
    ({}, {}),
    ({}, {"before": set_none}),
    ({}, {"before": keep_zero}),
    ({"bucket_cap_mb": 0.0003}, {}),
    ({"bucket_cap_mb": 0.0003}, {"before": set_none}),
    ({"backward_passes_per_step": 2}, {"passes": 2}),
    ({"backward_passes_per_step": 2, "bucket_cap_mb": 0.0003}, {"passes": 2}),
    ({"gradient_predivide_factor": 3.0}, {}),
    ({"op": hvd.Sum}, {"factor": 1 / SIZE}),
    ({"groups": 3}, {}),
    ({"groups": 50, "bucket_cap_mb": 0.0003}, {}),
    ({"groups": [half]}, {}),
    ({"groups": [half], "bucket_cap_mb": 0.0003, "backward_passes_per_step": 2}, {"passes": 2}),
    ({"sparse_as_dense": True}, {}),
):
    if SIZE == 1 and "before" in how:
        continue  # plain PyTorch treats a zero otherwise than None
    model.load_state_dict(net().state_dict())
    for p in model.parameters():
        p.grad = None
    optimizer = wrapped(model, **settings)
    close(train(model, optimizer, RANK, **how), WANT, settings)
    assert all(p.grad is None for p in model.frozen.parameters())
    if settings.get("groups") == [half] and SIZE > 1:
        homes = [optimizer._exchanger.bucket_of[optimizer._exchanger._index[id(p)]] for p in half]
        assert len(set(homes)) == 1
        assert sum(index == homes[0] for index in optimizer._exchanger.bucket_of.values()) == 2
if SIZE > 1:
    assert optimizer._exchanger._overlap == (HOSTS > 1)

# Names, in Horovod's positional order, and the older name of groups.
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
if SIZE > 1 and HOSTS > 1:
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

# Ranks whose graphs differ, in every step anew.
model = net()
optimizer = wrapped(model, bucket_cap_mb=0.0003)
alone = net()
plain = sgd(alone.parameters())
for step, (x, y) in enumerate(data()):
    optimizer.zero_grad()
    mse_loss(model(x[RANK::SIZE], step + RANK), y[RANK::SIZE]).backward()
    optimizer.step()
    plain.zero_grad()
    for p in alone.parameters():
        p.grad = torch.zeros_like(p) if p.requires_grad and SIZE > 1 else None
    for rank in range(SIZE):
        (mse_loss(alone(x[rank::SIZE], step + rank), y[rank::SIZE]) / SIZE).backward()
    plain.step()
close(values(model), values(alone), "graphs that differ")

# no_sync: the sum of several backward passes is exchanged once; a step inside is this rank's alone.
model, alone = net(), net()
optimizer, plain = wrapped(model), sgd(alone.parameters())
batches = list(data())
optimizer.zero_grad()
plain.zero_grad()
if SIZE > 1:
    with_zeros_of = [p for p in alone.parameters() if p.requires_grad]
    for p in with_zeros_of:
        p.grad = torch.zeros_like(p)
with optimizer.no_sync():
    for x, y in batches[:2]:
        mse_loss(model(x[RANK::SIZE]), y[RANK::SIZE]).backward()
x, y = batches[2]
mse_loss(model(x[RANK::SIZE]), y[RANK::SIZE]).backward()
optimizer.step()
for x, y in batches[:3]:
    mse_loss(alone(x), y).backward()
plain.step()
close(values(model), values(alone), "no_sync")
with optimizer.no_sync():
    optimizer.zero_grad()
    (model(batches[0][0]).sum() * RANK).backward()
    optimizer.step()
assert SIZE == 1 or len(set(hvd.allgather_object(values(model).numpy().tobytes()))) == SIZE

# Closures: LBFGS sees the joint loss, so that it goes the same way on all ranks.
model, alone = net(), net()
x, y = batches[0]


def lbfgs(parameters):
    return torch.optim.LBFGS(
        [p for p in parameters if p.requires_grad], max_iter=8, line_search_fn="strong_wolfe"
    )


optimizer, plain = wrapped(model, lbfgs), lbfgs(alone.parameters())


def joint():
    plain.zero_grad()
    loss = mse_loss(alone(x), y)
    loss.backward()
    return loss


def part():
    optimizer.zero_grad()
    loss = mse_loss(model(x[RANK::SIZE]), y[RANK::SIZE])
    loss.backward()
    return loss


for _ in range(2):
    want, got = plain.step(joint), optimizer.step(part)
    assert abs(want.item() - got.item()) < 1e-6, (want, got)
assert (values(model) - values(alone)).abs().max() < 1e-5
assert len(set(hvd.allgather_object(values(model).numpy().tobytes()))) == 1

# Sparse gradients travel as such, outside the buckets; sometimes a rank has none, sometimes a dense one.
for settings in ({}, {"sparse_as_dense": True}, {"op": hvd.Sum}, {"bucket_cap_mb": 0.0003}):
    model = net(sparse=True)
    optimizer = wrapped(model, lambda p: torch.optim.SGD(p, lr=0.1), **settings)
    alone = net()
    plain = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        plain.zero_grad()
        for rank in range(SIZE):
            loss = mse_loss(alone(x[rank::SIZE], step), y[rank::SIZE])
            if step == 3 and rank == 0:
                loss = alone.last(torch.ones(1, 6)).sum()
            if step == 4 and rank == 0:
                loss = loss + (alone.words.weight * 0.5).sum()
            (loss / (1 if "op" in settings else SIZE)).backward()
        loss = mse_loss(model(x[RANK::SIZE], step), y[RANK::SIZE])
        if step == 3 and RANK == 0:
            loss = model.last(torch.ones(1, 6)).sum()
        if step == 4 and RANK == 0:
            loss = loss + (model.words.weight * 0.5).sum()
        loss.backward()
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
assert len(set(hvd.allgather_object(values(words).numpy().tobytes()))) == 1

# Parameters frozen and thawed, from the beginning and on the way.
model = net()
optimizer = wrapped(model, lambda p: torch.optim.SGD(p, lr=0.1), bucket_cap_mb=0.0003)
alone = net()
plain = torch.optim.SGD(alone.parameters(), lr=0.1)
for step, (x, y) in enumerate(data()):
    for one in (model, alone):
        one.frozen.requires_grad_(step >= 2)
        one.twice.requires_grad_(step != 3)
    optimizer.zero_grad()
    plain.zero_grad()
    mse_loss(model(x[RANK::SIZE]), y[RANK::SIZE]).backward()
    mse_loss(alone(x), y).backward()
    optimizer.step()
    plain.step()
    assert all((p.grad is None) == (step == 3) for p in model.twice.parameters()), step
    assert all((p.grad is None) == (step < 2) for p in model.frozen.parameters()), step
close(values(model), values(alone), "frozen and thawed")

# A graph over gradients keeps them as they are until the exchange.
model = net()
optimizer = wrapped(model)
optimizer.zero_grad()
loss = mse_loss(model(batches[0][0]), batches[0][1])
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch's own, about a cycle of references
    loss.backward(create_graph=True)
penalty = sum(p.grad.square().sum() for p in model.parameters() if p.grad is not None)
assert penalty.requires_grad
optimizer.synchronize()
taken = torch.autograd.grad(mse_loss(model(batches[1][0]), batches[1][1]), model.last.weight)[0]
assert SIZE == 1 or taken.data_ptr() != model.last.weight.grad.data_ptr()
with optimizer.skip_synchronize():
    optimizer.step()

# Copies and pickles train on; schedulers drive the learning rate, also one made before the wrapping.
for remake in (copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))):
    model = net()
    optimizer = wrapped(model)
    first, second = itertools.tee(data(RANK))
    model, optimizer = remake((model, optimizer))
    assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == "SGD"
    close(train(model, optimizer, RANK), WANT, "copied")
model = net()
optimizer = wrapped(model)
train(model, optimizer, RANK)
saved = io.BytesIO()
torch.save(optimizer.state_dict(), saved)
saved.seek(0)
optimizer.load_state_dict(torch.load(saved))
inner = sgd(model.parameters())
early = torch.optim.lr_scheduler.StepLR(inner, 1, 0.5)
optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
late = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
calls = []
optimizer.register_step_post_hook(lambda *_: calls.append(1))
optimizer.load_state_dict(optimizer.state_dict())
optimizer.zero_grad()
(model(batches[0][0]).sum() * (RANK + 1)).backward()
optimizer.step()
late.step()
assert optimizer.param_groups[0]["lr"] == 0.05 and len(calls) == 1
assert len(set(hvd.allgather_object(values(model).numpy().tobytes()))) == 1

# What is refused.
model = net()
named = list(model.named_parameters())
weights = [p for _name, p in named]
for wrong in (
    {"groups": 0},
    {"groups": -1},
    {"groups": "all"},
    {"groups": [weights[0]]},
    {"groups": [[weights[0]], [weights[0]]]},
    {"groups": [["words.weight"]]},
    {"num_groups": -2},
    {"compression": hvd.Compression.topk(0.1), "op": hvd.Max} if SIZE > 1 else {"groups": 0},
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused(ValueError, lambda settings=wrong: met(wrapped(model, **settings)))
if SIZE > 1:
    refused(
        ValueError,
        lambda: met(wrapped(model, bucket_cap_mb=1.0 + RANK)),
        "settings differ between rank 0 and rank 1",
    )
    optimizer = met(wrapped(model))
    for _ in range(2):
        try:
            model(batches[0][0]).sum().backward()
        except AssertionError as error:
            assert "more than backward_passes_per_step times" in str(error)
            break
    else:
        raise AssertionError("two backward passes went through")
    refused(AssertionError, optimizer.zero_grad, "was called after loss.backward()")
    optimizer.synchronize()
    optimizer.set_backward_passes_per_step(2)
    optimizer.zero_grad()
    for _ in range(2):
        model(batches[0][0]).sum().backward()
    optimizer.step()

# Adasum: equal steps stay what they are, steps at right angles add up.
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
    optimizer.zero_grad()
    line(torch.ones(1, SIZE)).sum().backward()
    optimizer.step()
    assert torch.allclose(line.weight, -3 * torch.ones(1, SIZE)), line.weight

    def evaluate():
        loss = line(torch.ones(1, SIZE)).sum()
        loss.backward()
        return loss

    for steps in (4, 5):  # what the closure computes is over with its step
        optimizer.zero_grad()
        optimizer.step(evaluate)
        assert torch.allclose(line.weight, -float(steps) * torch.ones(1, SIZE)), line.weight

# A process set trains on its own; the ranks outside it are left alone.
if SIZE > 1:
    first = hvd.add_process_set([0])
    pair = hvd.add_process_set(range(SIZE - 1)) if SIZE > 2 else first
    model = net()
    optimizer = wrapped(model, process_set=pair)
    optimizer.zero_grad()
    (model(batches[0][0]).sum() * (RANK + 1)).backward()
    optimizer.step()
    same = hvd.allgather_object(values(model).numpy().tobytes())
    assert len(set(same[: pair.size()])) == 1 and len(set(same)) == 2
    if pair is not first:
        hvd.remove_process_set(pair)
    hvd.remove_process_set(first)

# A rank that has joined counts as zeros.
if SIZE > 1:
    line = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(line.weight)
    optimizer = wrapped(line, lambda p: torch.optim.SGD(p, lr=1.0))
    for _ in range(2 + RANK):
        optimizer.zero_grad()
        line(torch.ones(1, 1)).sum().backward()
        optimizer.step()
    assert hvd.join() == SIZE - 1
    # Rank r makes 2 + r steps; in step s those with r >= s - 1 take part.
    moved = sum(sum(rank + 2 > step for rank in range(SIZE)) / SIZE for step in range(2 + RANK))
    assert abs(line.weight.item() + moved) < 1e-12, line.weight

# After all that the engine is well.
try:
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE
except HorovodInternalError as error:
    raise AssertionError("the engine is broken") from error
print("rank done", flush=True)
