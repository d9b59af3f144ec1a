"""Reductions in place that come again: short and long ones, of changing tensors, types and lengths."""

import torch

import ringleader.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TOTAL = SIZE * (SIZE + 1) // 2
LENGTHS = (1, 1000, 5000, 70_001, 300_000, 262_144 * 3 + 17, 5)
"""Shorter than a buffer and several pieces long: what one leaves in the buffers the next must not find."""


def bring(count, dtype, turn):
    return ((torch.arange(count) + turn) % 7 * (RANK + 1)).to(dtype)


def wanted(count, dtype, turn, factor=1):
    return ((torch.arange(count) + turn) % 7 * TOTAL * factor).to(dtype)


for dtype in (torch.float32, torch.float64, torch.int32, torch.bfloat16):
    kept = {count: torch.empty(count, dtype=dtype) for count in LENGTHS}
    for turn in range(4):
        for count in LENGTHS:
            tensor = kept[count]
            tensor.copy_(bring(count, dtype, turn))
            assert hvd.allreduce_(tensor, op=hvd.Sum, name=None if turn < 2 else f"t{count}") is tensor
            assert torch.equal(tensor, wanted(count, dtype, turn)), (dtype, turn, count)
            other = bring(count, dtype, turn + 1)  # another tensor with the same description
            hvd.allreduce_(other, op=hvd.Sum)
            assert torch.equal(other, wanted(count, dtype, turn + 1)), (dtype, turn, count)
        # Results not in place, scaled values and groups go through the same buffers.
        source = bring(300_000, dtype, turn)
        assert torch.equal(hvd.allreduce(source, op=hvd.Sum), wanted(300_000, dtype, turn))
        assert torch.equal(source, bring(300_000, dtype, turn)), "the input is the script's"
        scaled = bring(300_000, dtype, turn)
        hvd.allreduce_(scaled, op=hvd.Sum, prescale_factor=2.0)
        assert torch.equal(scaled, wanted(300_000, dtype, turn, 2)), (dtype, turn)
        group = [bring(count, dtype, turn) for count in (5, 300_000, 70_001, 100)]
        for one in hvd.grouped_allreduce_(group, op=hvd.Sum):
            assert torch.equal(one, wanted(one.numel(), dtype, turn)), (dtype, turn, one.numel())

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
for _ in range(3):
    hvd.allreduce_(tensor.fill_(1), op=hvd.Sum)
if SIZE > 1:
    for shape in ((3, 2), (2, 3)):
        mine = torch.ones(2, 3)
        if RANK == SIZE - 1:
            mine.resize_(shape)
        try:
            hvd.allreduce_(mine, op=hvd.Sum)
            assert shape == (2, 3), "a mismatch went through"
            assert torch.equal(mine, torch.full((2, 3), float(SIZE)))
        except hvd.HorovodInternalError as error:
            assert shape == (3, 2), error
            assert "Mismatched" in str(error), error
hvd.allreduce_(tensor.fill_(1), op=hvd.Sum)
assert torch.equal(tensor, torch.full((2, 3), float(SIZE)))

# In a second life of the engine nothing of the first is used.
hvd.shutdown()
hvd.init()
hvd.allreduce_(tensor.fill_(1), op=hvd.Sum)
assert torch.equal(tensor, torch.full((2, 3), float(SIZE)))
hvd.shutdown()
print("rank done", flush=True)
