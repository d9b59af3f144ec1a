"""Reductions of memory that all ranks of a host see: where they are, wherever on the ranks that is."""

import sys

import torch
from ranks import RANK, SIZE, hvd

from ringleader.engine.window.staged_reductions import IN_PLACE_BYTES
from ringleader.torch.basics import session

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 300_001
"""By default more than every rank reduces for itself, and slices of odd lengths."""
WHOLE = 1 << 20
FIRST, SECOND = hvd.registered_empty(WHOLE), hvd.registered_empty(4, WHOLE // 4).view(-1)
WANT = (torch.arange(COUNT) % 97 * sum(range(1, SIZE + 1))).float()


def filled(tensor):
    tensor.copy_(torch.arange(COUNT) % 97 * (RANK + 1))
    return tensor


def places():
    """Where the tensor lies on this rank, and whether it can be reduced there on one host."""
    other = torch.empty(COUNT)
    yield "at the beginning", FIRST[:COUNT], True
    yield "inside", FIRST[1000 : 1000 + COUNT], True
    yield "at the end", SECOND[WHOLE - COUNT :], True
    yield "shifted", FIRST[RANK * 64 : RANK * 64 + COUNT], False
    yield "on rank 0 only", FIRST[:COUNT] if RANK == 0 else other, False
    yield "in two segments", FIRST[:COUNT] if RANK else SECOND[:COUNT], False
    yield "nowhere", other, False


REGISTERED = getattr(session().engine.transport, "registered", None)
DONE_IN_PLACE = []


class Noted(dict):
    """What reduces at a location; notes that it was asked for."""

    def get(self, place):
        DONE_IN_PLACE.append(place)
        return super().get(place)


if REGISTERED is not None:
    REGISTERED.reducers = Noted()


for turn in range(3):
    for where, tensor, in_place in places():
        DONE_IN_PLACE.clear()
        assert hvd.allreduce_(filled(tensor), op=hvd.Sum) is tensor
        assert torch.equal(tensor, WANT), (turn, where)
        if session().engine.transport.name == "window":
            assert len(DONE_IN_PLACE) == int(in_place and COUNT * 4 > IN_PLACE_BYTES), (turn, where)
        assert torch.equal(hvd.allreduce(filled(tensor), op=hvd.Sum), WANT), (turn, where)
        hvd.allreduce_(filled(tensor), op=hvd.Sum, prescale_factor=2.0)
        assert torch.equal(tensor, WANT * 2), (turn, where)
    elsewhere = SECOND[:COUNT] if RANK else FIRST[400_000 : 400_000 + COUNT]
    several = [FIRST[:COUNT], torch.empty(COUNT), elsewhere, FIRST[720_000 : 720_000 + COUNT]]
    order = list(enumerate(several))[:: 1 if RANK == 0 else -1]
    for handle in [hvd.allreduce_async_(filled(one), name=f"{at}", op=hvd.Sum) for at, one in order]:
        hvd.synchronize(handle)
    for index, tensor in order:
        assert torch.equal(tensor, WANT), (turn, "several", index)

for dtype in (torch.int32, torch.float16, torch.bool):
    tensor = hvd.registered_empty(COUNT * 3, dtype=dtype)
    assert tensor.dtype == dtype and tensor.shape == (COUNT * 3,)
    tensor.fill_(1)
    hvd.allreduce_(tensor, op=hvd.Sum)
    assert (tensor == (1 if dtype == torch.bool else SIZE)).all(), dtype
assert hvd.registered_empty(0).shape == (0,)
assert hvd.registered_empty().shape == ()
FIRST.fill_(7.0)
hvd.shutdown()
assert (FIRST == 7.0).all()  # memory that is still looked at outlives its world
print("rank done", flush=True)
