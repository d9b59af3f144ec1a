"""SyncBatchNorm on parts of a batch against torch's BatchNorm on the whole of it."""

import itertools
import os

import torch
from refusals import refused
from torch.nn.functional import batch_norm

import ringleader.torch as hvd
from ringleader.torch.sync_batch_norm import SyncBatchNorm

two = hvd.ProcessSet([0, 1])
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
hvd.init()
rank, size = hvd.rank(), hvd.size()
CHANNELS = 3


def parts(ranks: int) -> list[int]:
    """Return how many items each rank has: different numbers, none on the last of three or more."""
    return [2 + at for at in range(ranks)] if ranks < 3 else [3 + at for at in range(ranks - 1)] + [0]


def close(mine: torch.Tensor, theirs: torch.Tensor, tolerance: float, what: str) -> None:
    torch.testing.assert_close(mine.double(), theirs.double(), rtol=tolerance, atol=tolerance, msg=what)


def one_case(
    shape: tuple[int, ...],
    *,
    affine: bool,
    momentum: float | None,
    track: bool,
    dtype: torch.dtype,
    group: hvd.ProcessSet = hvd.global_process_set,
) -> None:
    what = f"{shape} affine={affine} momentum={momentum} track={track} {dtype}"
    torch.manual_seed(7)
    rank, counts = group.rank(), parts(group.size())
    whole_data = [torch.randn(sum(counts), CHANNELS, *shape, dtype=torch.float64) * 3 + 5 for _ in range(3)]
    upstream = [torch.randn_like(data) for data in whole_data]
    settings = {"momentum": momentum, "affine": affine, "track_running_stats": track}
    whole = torch.nn.BatchNorm2d(CHANNELS, **settings).double()
    whole._check_input_dim = lambda data: None
    part = SyncBatchNorm(CHANNELS, **settings, process_set=group)
    part = part.to(torch.float64 if dtype is torch.float64 else torch.float32)
    if affine:
        with torch.no_grad():
            for layer in (whole, part):
                layer.weight.copy_(torch.tensor([0.5, -1.0, 2.0]))
                layer.bias.copy_(torch.tensor([0.1, 0.2, -0.3]))
    start = sum(counts[:rank])
    rows = slice(start, start + counts[rank])
    tolerance = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 5e-2, torch.float16: 5e-3}[dtype]
    for data, weight_of in zip(whole_data, upstream, strict=True):
        rounded = data.to(dtype)
        joint = rounded.double().clone().requires_grad_()
        mine = rounded[rows].clone().requires_grad_()
        expected, got = whole(joint), part(mine)
        assert got.dtype is dtype
        expected.backward(weight_of.to(dtype).double())
        got.backward(weight_of.to(dtype)[rows])
        close(got, expected[rows], tolerance, f"{what}: output")
        close(mine.grad, joint.grad[rows], tolerance, f"{what}: gradient")
    for mine, all_of_it in zip(part.parameters(), whole.parameters(), strict=True):
        total = hvd.allreduce(mine.grad, op=hvd.Sum, process_set=group)
        close(total, all_of_it.grad, tolerance * 300, f"{what}: weight or bias")
    if track:
        close(part.running_mean, whole.running_mean, max(tolerance, 1e-6), f"{what}: running mean")
        close(part.running_var, whole.running_var, max(tolerance, 1e-5), f"{what}: running variance")
        assert int(part.num_batches_tracked) == 3
        statistics = torch.stack([part.running_mean, part.running_var]).unsqueeze(0)
        gathered = hvd.allgather(statistics, process_set=group)
        assert all(torch.equal(gathered[0], other) for other in gathered), "ranks differ"
    whole.eval()
    part.eval()
    close(part(whole_data[0].to(dtype)[rows]), whole(whole_data[0].to(dtype).double())[rows], tolerance, what)


for shape, (affine, momentum, track) in itertools.product(
    [(), (4,), (2, 3)], [(True, 0.1, True), (False, None, True), (True, 0.1, False)]
):
    one_case(shape, affine=affine, momentum=momentum, track=track, dtype=torch.float64)
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    one_case((2, 3), affine=True, momentum=0.1, track=True, dtype=dtype)

# In evaluation nothing is exchanged: one rank alone may do it.
if rank == 0:
    layer = SyncBatchNorm(CHANNELS).eval()
    data = torch.randn(2, CHANNELS, 4)
    expected = batch_norm(data, layer.running_mean, layer.running_var, layer.weight, layer.bias)
    close(layer(data), expected, 1e-6, "evaluation")

for wrong in (torch.zeros(3), torch.zeros(2, CHANNELS + 1, 4)):
    refused(ValueError, lambda wrong=wrong: SyncBatchNorm(CHANNELS)(wrong), "expected")
# One value per channel in all has no variance; the error comes on every rank, and the next batch is right.
lonely = torch.zeros(int(rank == 0), CHANNELS)
refused(ValueError, lambda: SyncBatchNorm(CHANNELS)(lonely), "more than 1 value per channel")
one_case((2,), affine=True, momentum=0.1, track=True, dtype=torch.float64)
# In a process set the batch is that of its ranks; others may not take part.
if size > 2:
    hvd.add_process_set(two)
    if rank < 2:
        one_case((2, 3), affine=True, momentum=0.1, track=True, dtype=torch.float64, group=two)
    else:
        outside = SyncBatchNorm(CHANNELS, process_set=two)
        refused(ValueError, lambda: outside(torch.zeros(2, CHANNELS)), "not a member")
print("rank done", flush=True)
