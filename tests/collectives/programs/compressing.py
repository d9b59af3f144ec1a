"""Compressed gradients: training converges, what is left out comes later; a script's own compressor."""

import torch
from ranks import RANK, SIZE, hvd
from refusals import refused

from ringleader.torch.compression import Compressor

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


def fit(compression, steps=150):
    torch.manual_seed(1)
    model, teacher = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh()), torch.nn.Linear(20, 2)
    model.append(torch.nn.Linear(30, 30).requires_grad_(False))
    model.extend([torch.nn.Tanh(), torch.nn.Linear(30, 2)])
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters(), compression=compression)
    x = torch.randn(24 * SIZE, 20, generator=torch.Generator().manual_seed(5))
    y = torch.tanh(teacher(x)).detach()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x[RANK::SIZE]), y[RANK::SIZE])
        loss.backward()
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach().reshape(1)).item())
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    assert len(set(hvd.allgather_object(flat.numpy().tobytes()))) == 1, compression
    return losses[0], losses[-1]


first, plain = fit(hvd.Compression.none)
assert plain < first / 20, (first, plain)
for compression, bound in (
    (hvd.Compression.fp16, 1.02),
    (hvd.Compression.bf16, 1.1),
    (Halves, 1.000001),
    (hvd.Compression.topk(0.05), 2.0),
    (hvd.Compression.powersgd(2), 2.0),
):
    _, last = fit(compression)
    assert last < plain * bound, (compression, last, plain)
assert Halves.calls > 0 or SIZE == 1

# Error feedback: what was applied and what is still kept add up to the sum of the true gradients.
for compression in (hvd.Compression.topk(0.1), hvd.Compression.powersgd(1)):
    lines = torch.nn.ModuleList([torch.nn.Linear(9, 8), torch.nn.Linear(5, 7, bias=False)])
    parameters = list(lines.parameters())
    sgd = torch.optim.SGD(parameters, lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, lines.named_parameters(), compression=compression)
    generator = torch.Generator().manual_seed(RANK)
    applied, true = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
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
    missed = 0.0
    for p, got, want in zip(parameters, applied, true, strict=True):
        left = optimizer._exchanger._reducer.residual(p)
        rest = 0.0 if left is None else hvd.allreduce(left)
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
    refused(ValueError, wrong)
print("rank done", flush=True)
