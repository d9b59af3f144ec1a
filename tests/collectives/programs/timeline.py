"""Horovod's calls for a timeline, and what is in the file a tenth of a second after an allreduce."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from refusals import refused

import ringleader.torch as hvd

directory = Path(sys.argv[1])


def soon(path: Path, *texts: str) -> None:
    """Wait until all texts are in the file."""
    for _ in range(500):
        missing = [text for text in texts if not path.exists() or text not in path.read_text()]
        if not missing:
            return
        time.sleep(0.01)
    raise AssertionError(f"not in {path}: {missing}")


def not_started(word: str) -> None:
    refused(ValueError, lambda: hvd.start_timeline("x.json"), word)


not_started("not been initialized")
refused(ValueError, hvd.stop_timeline, "not been initialized")
whole = directory / "whole.{rank}.json"
os.environ["HOROVOD_TIMELINE"], os.environ["HOROVOD_TIMELINE_MARK_CYCLES"] = str(whole), "1"
hvd.init()
rank, hvd_size = hvd.rank(), hvd.size()
mine = Path(str(whole).replace("{rank}", str(rank)))
hvd.allreduce(torch.ones(3), name="test_allreduce")
soon(mine, "allreduce.test_allreduce", "NEGOTIATE_ALLREDUCE", '"ALLREDUCE"', "CYCLE_START", "WAIT_FOR_RANKS")
soon(mine, "start_time_since_epoch_in_micros")
handles = [hvd.allreduce_async(torch.ones(3), name=f"one.{at}") for at in range(4)]
for handle in handles:
    hvd.synchronize(handle)
hvd.broadcast(torch.ones(2), 0)
if hvd_size > 1:
    wrong = torch.ones(2 + rank)
    refused(hvd.HorovodInternalError, lambda: hvd.allreduce(wrong, name="wrong"))
    soon(mine, "Mismatched tensor shapes")

# Started and stopped by the script: what was between is in the file, what was not is not.
path = directory / "some.json"
for mark_cycles, between in ((False, "just_right"), (True, "second")):
    hvd.allreduce(torch.ones(3), name="too_early")
    hvd.start_timeline(str(path), mark_cycles=mark_cycles)
    hvd.allreduce(torch.ones(3), name=between)
    hvd.stop_timeline()
    hvd.stop_timeline()
    hvd.allreduce(torch.ones(3), name="too_late")
    if rank == 0:
        text = path.read_text()
        json.loads(text)
        assert between in text and "too_" not in text
        assert ("just_right" in text, "CYCLE_START" in text) == (not mark_cycles, mark_cycles)
    hvd.barrier()
hvd.shutdown()

# Without the variable at init a script cannot start one.
del os.environ["HOROVOD_TIMELINE"]
hvd.init()
not_started("HOROVOD_TIMELINE=DYNAMIC")
hvd.stop_timeline()
hvd.shutdown()

# Buckets that travel during backward: in the last step it continues only when one of them is there.
os.environ["HOROVOD_TIMELINE"] = str(directory / "training.{rank}.json")
training = directory / f"training.{rank}.json"
overlapping = hvd_size > 1 and "RINGLEADER_RANKS_PER_HOST" in os.environ
STEPS = 3


def buckets_written() -> int:
    return training.read_text().count('"tensor":"gradients.')


class Now:
    last = False
    """Whether this is the last step."""
    before = 0
    """Exchanges of buckets that the file showed at the begin of the step."""


class Pause(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        deadline = time.monotonic() + 20
        while overlapping and Now.last and buckets_written() == Now.before:
            assert time.monotonic() < deadline, "no bucket was exchanged during backward"
            time.sleep(0.01)
        return grads[0]


class Pausing(torch.nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return Pause.apply(values)


hvd.init()
torch.manual_seed(0)
layers = [torch.nn.Linear(64, 64) for _ in range(6)]
model = torch.nn.Sequential(*layers[:3], Pausing(), *layers[3:])
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), bucket_cap_mb=0.02)
for step in range(STEPS):
    time.sleep(0.2)  # the file then holds all of the steps before
    Now.last, Now.before = step == STEPS - 1, buckets_written()
    optimizer.zero_grad()
    model(torch.ones(4, 64)).sum().backward()
    optimizer.step()
hvd.shutdown()
print("rank done", flush=True)
