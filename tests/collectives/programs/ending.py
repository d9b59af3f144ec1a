"""One rank leaves in the way that argv says while the others wait in an allreduce named "loss"."""

import os
import signal
import sys
import time

import torch

import ringleader.torch as hvd

hvd.init()
how, last = sys.argv[1], hvd.size() - 1
hvd.barrier()
if hvd.rank() == last:
    if how == "returns":
        sys.exit(0)
    if how == "raises":
        raise ValueError("this rank's own mistake")
    if how == "shuts down":
        hvd.shutdown()
        sys.exit(0)
    if how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "calls something else":
        try:
            hvd.barrier()
        except hvd.HorovodInternalError as error:
            print(f"rank {last} got: {error}", flush=True)
if how == "is late":
    if hvd.rank() == 0:
        time.sleep(3)
    sys.exit(0)
if hvd.rank() != last:
    start = time.monotonic()
    try:
        hvd.allreduce(torch.ones(2), name="loss")
    except hvd.HorovodInternalError as error:
        print(f"rank {hvd.rank()} got after {time.monotonic() - start:.1f} s: {error}", flush=True)
if how == "calls something else":
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    print("rank done", flush=True)
