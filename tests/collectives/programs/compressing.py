"""Compressed gradients: training still converges, and what is left out comes later.

Also a compressor of the script's own.
"""

import torch

import ringleader.torch as hvd
from ringleader.torch.compression import Compressor

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


class Halves(Compressor):
    """Send half of the value; a class without a word about types, as scripts have them."""

    calls = 0

    @staticmethod
    def compress(tensor):
        Halves.calls += 1
        return tensor.reshape(-1) / 2, tensor.shape

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.view(ctx) * 2


class Unused(torch.nn.Module):
    """A layer that most of a net's gradients come from, one that has none, and a frozen one."""

    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(20, 30)
        self.none = torch.nn.Linear(3, 3)
        self.frozen = torch.nn.Linear(30, 30).requires_grad_(False)
        self.last = torch.nn.Linear(30, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.frozen(torch.tanh(self.wide(x)))))


def fit(compression, steps, lr=0.1):
    """Return the first and the last loss of all ranks together on data that differs between ranks."""
    torch.manual_seed(1)
    model, teacher = Unused(), torch.nn.Linear(20, 2)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=lr), model.named_parameters(), compression=compression
    )
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(24 * SIZE, 20, generator=generator)
    y = torch.tanh(teacher(x)).detach()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x[RANK::SIZE]), y[RANK::SIZE])
        loss.backward()
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach().reshape(1)).item())
        assert all(p.grad is None for p in model.frozen.parameters())
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    assert len(set(hvd.allgather_object(flat.numpy().tobytes()))) == 1, compression
    return losses[0], losses[-1]


first, plain = fit(hvd.Compression.none, 150)
assert plain < first / 20, (first, plain)
for compression, bound in (
    (hvd.Compression.fp16, 1.02),
    (hvd.Compression.bf16, 1.1),
    (Halves, 1.000001),
    (hvd.Compression.topk(0.05), 2.0),
    (hvd.Compression.powersgd(2), 2.0),
):
    _, last = fit(compression, 150)
    assert last < plain * bound, (compression, last, plain)
assert Halves.calls > 0 or SIZE == 1

# Error feedback: what was applied and what is still kept add up to the sum of the true gradients.
for compression in (hvd.Compression.topk(0.1), hvd.Compression.powersgd(1)):
    torch.manual_seed(2)
    lines = torch.nn.ModuleList([torch.nn.Linear(9, 8), torch.nn.Linear(5, 7, bias=False)])
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(lines.parameters(), lr=1.0), lines.named_parameters(), compression=compression
    )
    parameters = list(lines.parameters())
    generator = torch.Generator().manual_seed(RANK)
    applied = [torch.zeros_like(p) for p in parameters]
    true = [torch.zeros_like(p) for p in parameters]
    missed = 0.0
    for _ in range(12):
        optimizer.zero_grad()
        for p, total in zip(parameters, true, strict=True):
            p.grad = torch.randn(p.shape, generator=generator)
            total += hvd.allreduce(p.grad)
        optimizer.synchronize()
        for p, total in zip(parameters, applied, strict=True):
            total += p.grad
    if SIZE == 1:
        continue
    reducer = optimizer._exchanger._reducer
    left = [reducer.residual(p) for p in parameters]
    kept = [
        torch.zeros_like(p) if one is None else hvd.allreduce(one)
        for one, p in zip(left, parameters, strict=True)
    ]
    for got, rest, want in zip(applied, kept, true, strict=True):
        assert torch.allclose(got + rest, want, atol=1e-10), compression
        missed += float((got - want).abs().max())
    assert missed > 1e-3, "everything was sent: this test would not see a lost error"

# Wrong settings, and operations that have no account to keep.
for wrong in (
    lambda: hvd.Compression.topk(0.0),
    lambda: hvd.Compression.topk(1.5),
    lambda: hvd.Compression.powersgd(0),
    lambda: hvd.allreduce(torch.ones(3), compression=hvd.Compression.topk(0.5)),
    lambda: fit(hvd.Compression.topk, 1),
    lambda: fit("fp16", 1),
):
    try:
        wrong()
    except ValueError:
        pass
    else:
        raise AssertionError("went through")
print("rank done", flush=True)
