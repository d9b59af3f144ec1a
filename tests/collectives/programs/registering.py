"""`hvd.register_`: storages that move into memory between the ranks, with all that PyTorch has over them."""

import gc
import sys

import torch
from ranks import RANK, SIZE, hvd
from refusals import refused

from ringleader.engine.group_communicators import free_bytes
from ringleader.torch.basics import session

COUNT = 50_000
TRANSPORT = session().engine.transport
SHARED = TRANSPORT.registered is not None and SIZE > 1
COMMS = session().group.comms


def location(tensor):
    return TRANSPORT.registered.location(tensor.data_ptr(), tensor.numel() * tensor.itemsize) if SHARED else 0


def mean(values):
    return values * (SIZE + 1) / 2


def segments():
    return len(COMMS.segments) if SHARED else 0


def stays(tensor, *words):
    """See that all ranks are told why, and that nothing has moved."""
    before, count = tensor.data_ptr() if tensor.layout is torch.strided else 0, segments()
    refused(ValueError, lambda: hvd.register_(tensor), *words)
    assert segments() <= count
    assert tensor.layout is not torch.strided or tensor.data_ptr() == before


# The values stay, PyTorch's views follow, what NumPy took before does not.
VALUES = torch.arange(COUNT).float() % 97
tensor = VALUES * (RANK + 1)
view, parameter = tensor[100:200], torch.nn.Parameter(tensor)
array = tensor.numpy()
assert hvd.register_(tensor) is tensor
assert torch.equal(tensor, VALUES * (RANK + 1)), "values changed"
assert view.data_ptr() == tensor.data_ptr() + 400
assert parameter.data_ptr() == tensor.data_ptr()
assert bool(location(tensor)) == SHARED
assert (array.ctypes.data == tensor.data_ptr()) == (not SHARED)
assert hvd.allreduce_(tensor) is tensor
assert torch.equal(tensor, mean(VALUES)) and torch.equal(view, mean(VALUES)[100:200])
assert torch.equal(parameter, mean(VALUES))
if SHARED:
    assert (array == (VALUES * (RANK + 1)).numpy()).all(), "the old memory is as it was"
    if TRANSPORT.name == "window":
        assert (location(tensor), "float32", COUNT) in TRANSPORT.registered.reducers, "not reduced in place"
# Once more is nothing new.
count = segments()
assert hvd.register_(tensor) is tensor and segments() == count
assert hvd.register_(view) is view and segments() == count

# A parameter under autograd; its gradient is what it was.
layer = torch.nn.Linear(300, 200)
torch.nn.init.constant_(layer.weight, RANK + 1.0)
layer(torch.ones(300)).sum().backward()
grad = layer.weight.grad
assert hvd.register_(layer.weight) is layer.weight and layer.weight.grad is grad
assert layer.weight.is_leaf and layer.weight.requires_grad
layer(torch.ones(300)).sum().backward()
torch.optim.SGD(layer.parameters(), lr=0.5).step()
assert torch.equal(layer.weight, torch.full((200, 300), RANK + 0.0))
with torch.no_grad():
    hvd.allreduce_(layer.weight, op=hvd.Sum)
assert torch.equal(layer.weight, torch.full((200, 300), SIZE * (SIZE - 1) / 2))

# A part of a tensor: the whole moves.
whole = torch.full((3, COUNT), RANK + 1.0)
hvd.register_(whole[1])
assert [bool(location(row)) for row in whole] == [SHARED] * 3
hvd.allreduce_(whole[2], op=hvd.Sum)
assert whole[:, 0].tolist() == [RANK + 1.0, RANK + 1.0, SIZE * (SIZE + 1) / 2]
for dtype in (torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8):
    other = torch.ones(COUNT, dtype=dtype)
    hvd.allreduce_(hvd.register_(other), op=hvd.Max)
    assert (other == 1).all() and bool(location(other)) == SHARED
assert hvd.register_(torch.empty(0)).shape == (0,) and hvd.register_(torch.tensor(3.0)).item() == 3.0

# What cannot be moved is refused on all ranks, also where only one of them brings it.
last = f"rank {SIZE - 1}: "
stays(torch.ones(6, 6)[:, :3], "not contiguous")
stays(torch.ones(6, 6).t()[1:] if RANK == SIZE - 1 else torch.ones(5, 6), last, "not contiguous")
stays(torch.ones(6).to_sparse(), "not strided")
stays(torch.ones(6, device="meta"), "on meta")
stays(torch.ones(6, dtype=torch.complex64), "complex64")
stays(torch.ones(600).share_memory_(), "shared with other processes")
if SIZE > 1:
    length = f"{last}float32[{599 + SIZE}]"
    stays(torch.ones(600 + RANK), "different tensors", "rank 0: float32[600]", length)
    stays(torch.ones(600, dtype=torch.int32 if RANK else torch.float32), "different tensors")
    stays(torch.ones(600)[RANK * 100 : RANK * 100 + 50], "different tensors", "of a storage of 2400 bytes")
if "too-large" in sys.argv:
    # Equal on all ranks, and more than there is for each; nothing of it is touched.
    room = int(hvd.broadcast(torch.tensor((free_bytes() or 0) // SIZE + (64 << 20)), 0))
    stays(torch.empty(room, dtype=torch.uint8), "no room in /dev/shm")
assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [SIZE] * 2, "the ranks continue"

# The memory goes with the last tensor over it, and the old one with it.
count = segments()
passing = hvd.register_(torch.full((COUNT,), 1.0))
piece = passing[5:8]
del passing
gc.collect()
hvd.register_(torch.ones(8))
if SHARED:
    assert segments() == count + 2 and piece.tolist() == [1.0] * 3
    del piece
    gc.collect()
    hvd.registered_empty(8)
    hvd.allreduce(torch.ones(2))
    assert segments() <= count + 1, (segments(), count)

# After shutdown the tensor is as it was, and moves once more in the next life.
hvd.shutdown()
gc.collect()
tensor.add_(1.0)
assert torch.equal(tensor, mean(VALUES) + 1) and torch.equal(view, tensor[100:200])
hvd.init()
TRANSPORT = session().engine.transport
assert hvd.allreduce_(tensor) is tensor and torch.equal(tensor, mean(VALUES) + 1)
hvd.register_(tensor)
assert bool(location(tensor)) == SHARED and torch.equal(view, mean(VALUES)[100:200] + 1)
hvd.allreduce_(tensor, op=hvd.Sum)
assert torch.equal(tensor, (mean(VALUES) + 1) * SIZE)
print("rank done", flush=True)
