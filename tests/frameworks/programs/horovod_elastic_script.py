"""Trains six steps with ``horovod.torch``; rank 1 ends with exit code 7 once, if its file is missing."""

import os
import sys
from pathlib import Path

import horovod.torch as hvd
import torch

FAILED = Path(sys.argv[1])

hvd.init()
state = hvd.elastic.TorchState(model=torch.nn.Linear(1, 1), step=0)


@hvd.elastic.run
def train(state):
    while state.step < 6:
        hvd.allreduce(torch.ones(1), name="x")
        if state.step == 3 and hvd.rank() == 1 and not FAILED.exists():
            FAILED.touch()
            os._exit(7)
        state.step += 1
        state.commit()
    print(f"done: was rank {os.environ['HOROVOD_RANK']}, is {hvd.rank()} of {hvd.size()}")


train(state)
