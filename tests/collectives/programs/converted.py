"""Gradients of another element type on the wire, of many lengths and in pieces: the sums to the last bit."""

import torch
from ranks import RANK, SIZE, hvd

from ringleader.engine.transports.pipeline import Pieces
from ringleader.torch.basics import session

COUNTS = (1, 63, 64, 1000, 70_001, 400_000)
engine = session().engine
assert engine.converts == (hvd.size() > hvd.local_size()), "between hosts"


def reduced(count, compression, op, prescale=1.0):
    """Return gradients after the exchange; small integers, so that no type rounds them."""
    parameter = torch.nn.Parameter(torch.zeros(count))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter], lr=1.0),
        [("p", parameter)],
        compression=compression,
        op=op,
        gradient_predivide_factor=prescale,
    )
    for _ in range(2):
        optimizer.zero_grad()
        (parameter * (torch.arange(count) % 13 + RANK)).sum().backward()
        optimizer.synchronize()
    return parameter.grad.clone()


for piece in (128 << 10, 2 << 20):
    if engine.converts:
        engine.transport.reducer.pieces = Pieces(nbytes=piece)
    for count in COUNTS:
        total = (torch.arange(count) % 13) * SIZE + SIZE * (SIZE - 1) / 2
        for compression in (hvd.Compression.bf16, hvd.Compression.fp16):
            found = reduced(count, compression, hvd.Sum)
            assert torch.equal(found, total), (count, compression, piece)
            if SIZE & (SIZE - 1) == 0:
                assert torch.equal(reduced(count, compression, hvd.Average), total / SIZE), (
                    count,
                    compression,
                )
                found = reduced(count, compression, hvd.Average, prescale=float(SIZE))
                assert torch.equal(found, total / SIZE), (count, compression)
print("rank done", flush=True)
