"""Rank 1 leaves out an operation named "missing" while all others ask for it. argv: what follows."""

import sys
import time

import torch

import ringleader.torch as hvd

hvd.init()
how, rank, size = sys.argv[1], hvd.rank(), hvd.size()
value = torch.ones(3)
if how == "never calls" and rank == 1:
    time.sleep(4)
    # The others have given up by now, so that nothing can be done with them any more.
    print("rank done", flush=True)
    sys.exit(0)
handle = None if rank == 1 else hvd.allreduce_async(value, name="missing", op=hvd.Sum)
try:
    start = time.monotonic()
    while how != "never calls":
        more = hvd.allreduce(torch.tensor([float(rank == 0)]), name="continues", op=hvd.Sum)
        assert more.item() == 1
        # One rank's clock counts for all, so that they continue together.
        clock = hvd.broadcast(torch.tensor([time.monotonic() - start]), 0, name="clock").item()
        if how == "told" and clock > 2.5:
            break
        time.sleep(0.01)
    if handle is None:
        handle = hvd.allreduce_async(value, name="missing", op=hvd.Sum)
    assert torch.equal(hvd.synchronize(handle), value * size)
except hvd.HorovodInternalError as error:
    assert how != "told", error
    print(error, flush=True)
else:
    assert how == "told"
    assert hvd.allreduce(value, name="after", op=hvd.Sum)[0].item() == size
print("rank done", flush=True)
