"""What a script sees where a GPU fails in the middle of a step, on the fake GPU. argv: what fails."""

import os
import sys
import traceback

import torch
from fake_gpu import on_gpu, use_fake_gpu

import ringleader.torch as hvd
from ringleader.engine.operations import ReduceOp
from ringleader.torch.basics import session

ERRORS = {
    "lost": torch.AcceleratorError("CUDA error: GPU is lost"),
    "memory": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "nccl": torch.distributed.DistBackendError(
        "NCCL error: remote process exited or there was a network error"
    ),
}
hvd.init()
RANK, SIZE, ENGINE = hvd.rank(), hvd.size(), session().engine
GPU, DEVICES = use_fake_gpu(deadline=5.0)
ENGINE.run(on_gpu(torch.ones(3), "first", op=ReduceOp.SUM))
if RANK == SIZE - 1:
    GPU.fails = ERRORS[sys.argv[1]]
try:
    ENGINE.run(on_gpu(torch.ones(3), "second", op=ReduceOp.SUM))
except RuntimeError as error:
    print("".join(traceback.format_exception_only(error)).strip(), flush=True)
if RANK != SIZE - 1:
    import time

    time.sleep(1.0)  # the failing rank's words first
os._exit(7)
