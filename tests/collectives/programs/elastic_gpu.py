"""Ranks of an elastic job on a fake GPU, whose NCCL waits for a dead peer as NCCL does, until it is aborted.

argv: the incarnation that is killed, and where the others are then: ``device`` or ``agreement``.
Prints, as JSON, what was put on the GPU and handed to NCCL.
"""

import json
import os
import signal
import sys
import threading
import time

import torch
from fake_cuda import Gpu
from fake_gpu import on_gpu, use_fake_gpu

import ringleader.torch as hvd
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.torch.c10d.group_watch import GroupWatch

VICTIM, WAITS = int(sys.argv[1]), sys.argv[2] == "device"
INCARNATION = int(os.environ["RINGLEADER_INCARNATION"])
GPU = Gpu()


def total(engine, value, name):
    """Sum a value over the ranks of an engine, on the GPU."""
    work = on_gpu(torch.full((10,), float(value)), name)
    if INCARNATION == VICTIM and name == "all.3":
        GPU.dies = WAITS
        if not WAITS:
            os.kill(os.getpid(), signal.SIGKILL)
    engine.run(work)
    return work.array[0].item()


def generation():
    """Train a generation; return whether it was the last one."""
    hvd.init(process_sets="dynamic")
    number, size, rank = PROCESS.session.membership.generation, hvd.size(), hvd.rank()
    GPU.steps.append(f"generation {number} of {size}")
    watch = GroupWatch()
    use_fake_gpu(gpu=GPU, watch=watch)
    engines = {"all": PROCESS.session.engine}
    pair = hvd.add_process_set([0, 1])
    if pair.included() and size > 2:
        group = PROCESS.session.registry.group(pair.process_set_id)
        use_fake_gpu(group, number=pair.process_set_id, gpu=GPU, watch=watch)
        engines["pair"] = group.engine
    for step in range(6):
        for name, engine in engines.items():
            ranks = size if name == "all" else 2
            found = total(engine, rank + step, f"{name}.{step}")
            wanted = sum(range(ranks)) + ranks * step
            # After an abort whatever is on the device is worth nothing; the next operation says so.
            if found != wanted and not PROCESS.session.membership.broken():
                GPU.steps.append(f"wrong {found} for {wanted}")
    return number == 2


while True:
    try:
        last = generation()
    except hvd.HorovodInternalError as error:
        GPU.steps.append(f"error {error}")
        last = False
    GPU.finish()
    hvd.shutdown()
    if last:
        break
end = time.monotonic() + 10
while "ringleader-groups" in [one.name for one in threading.enumerate()] and time.monotonic() < end:
    time.sleep(0.01)
left = [one.name for one in threading.enumerate() if one.name == "ringleader-groups"]
print(json.dumps({"pid": os.getpid(), "steps": GPU.steps, "left": left}), flush=True)
