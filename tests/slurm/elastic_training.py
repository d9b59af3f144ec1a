"""An elastic training whose losses are known in advance; rank 0 prints that of each step."""

import os
import sys
import time

import torch

import ringleader.torch as hvd

STEPS = int(sys.argv[1])
hvd.init()
state = hvd.elastic.TorchState(weight=torch.ones(1), step=0)


@hvd.elastic.run
def train(state):
    while state.step < STEPS:
        gradient = hvd.allreduce(state.weight * (hvd.rank() + 1), name="gradient")
        state.weight = state.weight - 0.1 * gradient
        state.step += 1
        if hvd.rank() == 0:
            restart = os.environ.get("SLURM_RESTART_COUNT", "0")
            print(f"step {state.step} loss {state.weight.item():.6f} restart {restart}", flush=True)
        state.commit()
        time.sleep(0.25)


train(state)
