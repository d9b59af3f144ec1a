"""Registered memory of which each rank owns a part: in one piece and in many, reduced and published."""

import torch
from ranks import RANK, SIZE, hvd

from ringleader.engine.operations import Signature, Work, signature_digest
from ringleader.engine.transports.pipeline import Pieces
from ringleader.torch.basics import session
from ringleader.torch.optimizer.sharded_gradients import part_of

engine = session().engine
assert engine.transport.name == "hosts", engine.transport.name


def reduce(divided, count, name):
    signature = Signature(kind="gradient_parts", dtype="float32", shape=(count,), postscale=0.5)
    engine.run(Work(signature, signature_digest(signature), name=name, serial=0, array=divided, out=divided))


def check(count, name):
    region = engine.register(count, "float32")
    start, stop = part_of(count, rank=RANK, size=SIZE)
    divided = engine.divide(region, start, stop)
    assert divided is not None
    values = (torch.arange(count) % 89).float()
    want = values * sum(range(1, SIZE + 1)) * 0.5
    for turn in range(3):
        region.mine.copy_(values * (RANK + 1))
        reduce(divided, count, f"{name}.reduce")
        assert torch.equal(region.mine[start:stop], want[start:stop]), (count, turn)
        hvd.barrier()  # peers may still read what this rank is about to write
        mine = region.mine[start:stop].clone()
        region.mine.fill_(-1.0)
        region.mine[start:stop] = mine
        hvd.barrier()
        engine.publish_parts(divided, f"{name}.publish")
        hvd.barrier()
        assert torch.equal(region.mine, want), (count, turn)
    engine.release(region)


for at, count in enumerate((32, 96, 32 * 1001, 32 * 40_007)):
    check(count, f"usual.{at}")
for depth in (1, 3):
    engine.transport.reducer.pieces = Pieces(nbytes=128 << 10, depth=depth)
    check(32 * 40_007, f"short pieces.{depth}")
print("rank done", flush=True)
