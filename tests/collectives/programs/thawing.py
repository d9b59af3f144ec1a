"""Parameters that one rank alone thaws or adds, under everything that exchanges gradients.

What all ranks freeze, thaw and add alike is drawn by `tests/sequences`, and compared with plain PyTorch.
"""

import torch
from ranks import RANK, SIZE, hvd
from refusals import refused

from ringleader.engine.process_lifecycle import membership


class Mine:
    """A compressor of the script's own."""

    def __init__(self, dtype):
        self.dtype = dtype

    def compress(self, tensor):
        return tensor.to(self.dtype), tensor.dtype

    def decompress(self, tensor, ctx):
        return tensor.to(ctx)


KINDS = [
    {},
    {"compression": hvd.Compression.fp16},
    {"compression": hvd.Compression.bf16()},
    {"compression": Mine(torch.float64)},
    {"compression": hvd.Compression.topk(0.3), "gradient_predivide_factor": 2.0, "groups": 2},
    {"compression": hvd.Compression.powersgd(1), "op": hvd.Sum, "backward_passes_per_step": 2},
    {"bucket_cap_mb": 0.0003, "groups": 2, "backward_passes_per_step": 2},
]
if SIZE & (SIZE - 1) == 0:
    KINDS.append({"op": hvd.Adasum})


def equal(model, what):
    flat = torch.cat([p.detach().float().reshape(-1) for p in model.parameters()])
    assert bool(flat.isfinite().all()), what
    assert len(set(hvd.allgather_object(flat.numpy().tobytes()))) == 1, what


def wrapped(model, **settings):
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.02), **settings)


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 12), torch.nn.Tanh(), torch.nn.Linear(12, 9)).to(dtype)


def step(optimizer, *models):
    optimizer.zero_grad()
    for _ in range(optimizer.backward_passes_per_step):
        sum(one(torch.randn(4, 16)).square().mean() for one in models).backward()
    optimizer.step()


for settings in KINDS:
    # One rank alone thaws a parameter; the others count as zeros, whether it is frozen there or not.
    model, more = net(), torch.nn.Linear(16, 10)
    hvd.broadcast_parameters(more.state_dict(), 0)
    model[0].requires_grad_(False)
    optimizer = wrapped(model, **settings)
    torch.manual_seed(100 + RANK)
    for turn in range(6):
        if turn == 3:
            model[0].weight.requires_grad_(RANK == 0)
        if turn == 4:
            optimizer.add_param_group({"params": list(more.parameters())})
        moved = model[0].weight.detach().clone()
        step(optimizer, model, more)
        assert torch.equal(moved, model[0].weight) == (turn < 3), (settings, turn)
        equal(torch.nn.ModuleList([model, more]), (settings, turn))
    # Some that one rank alone adds.
    if SIZE > 1:
        if RANK == SIZE - 1:
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(3))]})
        words = f"differ between rank 0 and rank {SIZE - 1}"
        refused(ValueError, lambda o=optimizer, m=model, n=more: step(o, m, n), words)
        if not settings:  # the one bucket that asked was not exchanged before
            assert len({grad.sum().item() for grad in hvd.allgather_object(model[2].weight.grad)}) > 1
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE
    del optimizer

# Where all gradients that are known are sparse there is no bucket; a rank that thaws something is heard, too.
words, late = torch.nn.Embedding(10, 3, sparse=True), torch.nn.Linear(3, 1)
both = torch.nn.ModuleList([words, late])
hvd.broadcast_parameters(both.state_dict(), 0)
late.requires_grad_(False)
optimizer = wrapped(both)
for turn in range(5):
    if turn == 2:
        late.weight.requires_grad_(RANK == 0)
    moved = late.weight.detach().clone()
    optimizer.zero_grad()
    late(words(torch.tensor([RANK, RANK + 1]))).square().sum().backward()
    optimizer.step()
    assert torch.equal(moved, late.weight) == (turn < 2), turn
    equal(both, turn)

# Half types, and infinite gradients in one step, as a scaled loss brings them: nothing of them stays.
for dtype in (torch.bfloat16, torch.float16, torch.float64):
    for compression in (hvd.Compression.powersgd(2), hvd.Compression.topk(0.25), Mine(torch.bfloat16)):
        model = net(dtype)
        optimizer = wrapped(model, compression=compression)
        torch.manual_seed(100 + RANK)
        x, losses = torch.randn(8, 16).to(dtype), []
        for turn in range(12):
            optimizer.zero_grad()
            loss = (model(x).float() - 1).square().mean()
            losses.append(loss.item())
            (loss * (float("inf") if turn == 4 and RANK == 0 else 1.0)).backward()
            optimizer.synchronize()
            if turn == 4 and SIZE > 1:
                assert not all(bool(p.grad.isfinite().all()) for p in model.parameters())
                continue
            with optimizer.skip_synchronize():
                optimizer.step()
            equal(model, (dtype, compression, turn))
        assert losses[-1] < losses[0], (dtype, compression, losses)

# Compressors are compared by what they are and are given, not by where they lie.
for compression in (Mine(torch.bfloat16 if RANK else torch.float16), hvd.Compression.topk(0.1 + RANK / 10)):

    def differing(compression=compression):
        optimizer = wrapped(net(), compression=compression)
        if membership() is not None:
            optimizer.synchronize()  # ranks of an elastic job meet at the first step

    if SIZE > 1:
        refused(ValueError, differing, "settings differ between rank 0 and rank 1")
print("rank done", flush=True)
