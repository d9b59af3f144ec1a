"""Reductions in place that come again: short and long ones, of changing tensors, types and lengths."""

import torch
from ranks import RANK, SIZE, hvd

TOTAL = SIZE * (SIZE + 1) // 2
LENGTHS = (1, 1000, 5000, 70_001, 300_000, 262_144 * 3 + 17, 5)
"""Shorter than a buffer and several pieces long: what one leaves in the buffers the next must not find."""


def bring(count, dtype, turn, factor=RANK + 1):
    return ((torch.arange(count) + turn) % 7 * factor).to(dtype)


for dtype in (torch.float32, torch.int32, torch.bfloat16):
    kept = {count: torch.empty(count, dtype=dtype) for count in LENGTHS}
    for turn in range(4):
        for count in LENGTHS:
            tensor = kept[count]
            tensor.copy_(bring(count, dtype, turn))
            assert hvd.allreduce_(tensor, op=hvd.Sum, name=None if turn < 2 else f"t{count}") is tensor
            assert torch.equal(tensor, bring(count, dtype, turn, TOTAL)), (dtype, turn, count)
            other = bring(count, dtype, turn + 1)  # another tensor with the same description
            hvd.allreduce_(other, op=hvd.Sum)
            assert torch.equal(other, bring(count, dtype, turn + 1, TOTAL)), (dtype, turn, count)
        # Results not in place, scaled values and groups go through the same buffers.
        source = bring(300_000, dtype, turn)
        assert torch.equal(hvd.allreduce(source, op=hvd.Sum), bring(300_000, dtype, turn, TOTAL))
        assert torch.equal(source, bring(300_000, dtype, turn)), "the input is the script's"
        hvd.allreduce_(source, op=hvd.Sum, prescale_factor=2.0)
        assert torch.equal(source, bring(300_000, dtype, turn, TOTAL * 2)), (dtype, turn)
        group = [bring(count, dtype, turn) for count in (5, 300_000, 70_001, 100)]
        for one in hvd.grouped_allreduce_(group, op=hvd.Sum):
            assert torch.equal(one, bring(one.numel(), dtype, turn, TOTAL)), (dtype, turn, one.numel())

# The last bits are those of one rank for all: values for which the order of additions counts.
noise = torch.randn(400_000, generator=torch.Generator().manual_seed(RANK)) * 10.0 ** (RANK - 1)
for op in (hvd.Sum, hvd.Average, hvd.Product):
    for count in (400_000, 9000, 100):
        result = hvd.allreduce_(noise[:count].clone(), op=op)
        assert torch.equal(result, hvd.broadcast(result, 0)), (op, count)

# Of a long array also where ranks differ in how they compute the numbers nearest to zero.
torch.set_flush_denormal(RANK == 0)
for dtype in (torch.float32, torch.float64):
    tiny = torch.full((400_000,), torch.finfo(dtype).tiny * 0.7, dtype=dtype)
    words = hvd.allreduce(tiny).view(torch.int32)
    assert torch.equal(words, hvd.broadcast(words, 0)), dtype
torch.set_flush_denormal(False)

# A rank that describes it differently is told so, and so are the others; what was kept stays right.
tensor = torch.ones(2, 3)
for turn in range(3 + 3 * (SIZE > 1)):
    mine = tensor.fill_(1) if turn != 3 or RANK < SIZE - 1 else torch.ones(3, 2)
    try:
        hvd.allreduce_(mine, op=hvd.Sum)
        assert turn != 3, "a mismatch went through"
        assert torch.equal(mine, torch.full((2, 3), float(SIZE)))
    except hvd.HorovodInternalError as error:
        assert turn == 3 and "Mismatched" in str(error), error

# Whatever differs from what was described is described anew, and is right.
square = torch.arange(16.0).view(4, 4)
for turn in range(3):
    for mine, op, factor, want in (
        (square.clone(), hvd.Sum, 1.0, square * SIZE),
        (square.clone().t(), hvd.Sum, 1.0, square.t() * SIZE),
        (torch._neg_view(square.clone()), hvd.Sum, 1.0, -square * SIZE),
        (torch.nn.Parameter(square.clone(), requires_grad=False), hvd.Sum, 1.0, square * SIZE),
        (square.clone().requires_grad_(), hvd.Sum, 1.0, square * SIZE),
        (square.int(), hvd.Sum, 1.0, square.int() * SIZE),
        (square.clone(), hvd.Max, 1.0, square),
        (square.clone(), hvd.Sum, 0.5, square * SIZE / 2),
        (square.clone().view(16), hvd.Sum, 1.0, square.view(16) * SIZE),
    ):
        with torch.no_grad():
            got = hvd.allreduce_(mine, op=op, postscale_factor=factor)
        assert got is mine and torch.equal(got, want), (turn, op, got)
kept = square.clone()
hvd.allreduce_(kept, op=hvd.Sum)
kept.t_()  # the same object has become another tensor
hvd.allreduce_(kept, op=hvd.Sum)
assert torch.equal(kept, square.t() * SIZE**2)
kept.data = square.clone()  # and is where it was not
hvd.allreduce_(kept, op=hvd.Sum)
assert torch.equal(kept, square * SIZE)

# In a second life of the engine nothing of the first is used.
hvd.shutdown()
hvd.init()
hvd.allreduce_(tensor.fill_(1), op=hvd.Sum)
assert torch.equal(tensor, torch.full((2, 3), float(SIZE)))
print("rank done", flush=True)
