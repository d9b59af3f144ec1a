"""What the engine counts of operations of known sizes, on 2 ranks."""

import torch

import ringleader.torch as hvd
from ringleader.engine.traffic import as_report
from ringleader.torch.basics import session

MIB = 1 << 20


def counted(operation):
    """What one operation added: (shared, within the host, sent, received) in bytes."""
    before, _ = numbers(), operation()
    return tuple(after - first for after, first in zip(numbers(), before, strict=True))


def numbers():
    report = as_report(session().traffic)
    mpi = report["libraries"].get("mpi", {})
    names = ("local", "sent_least", "received_least")
    return (report["shared"], *(mpi.get(name, 0) for name in names))


hvd.init()
other = 1 - hvd.rank()
array = torch.ones(MIB)
reduced = counted(lambda: hvd.allreduce(array, name="long"))
gathered = counted(lambda: hvd.allgather(torch.ones((1 + hvd.rank()) * 1024), name="rows"))
brought = counted(lambda: hvd.broadcast(torch.ones(2048), root_rank=0, name="word"))
if hvd.local_size() == 1:
    assert reduced == (0, 0, 4 * MIB, 4 * MIB), reduced
    assert gathered == (0, 0, 4096 * (1 + hvd.rank()), 4096 * (1 + other)), gathered
    assert brought == (0, 0, 8192 * other, 8192 * hvd.rank()), brought
else:
    assert reduced == (4 * MIB, 0, 0, 0), reduced
    assert gathered == (0, 4096 * (1 + hvd.rank()), 0, 0), gathered
    assert brought == (0, 8192 * other, 0, 0), brought
print("rank done", flush=True)
