"""Three ranks that wait for each other in different process sets, and ones that only look like it.

argv: how.
"""

import sys
import threading
import time

import torch

import ringleader.torch as hvd

PATIENCE = 0.3  # as the environment has it
HOW = sys.argv[1]
ONES = torch.ones(3)

hvd.init()
RANK = hvd.rank()
pair = hvd.add_process_set([0, 2])
other = hvd.add_process_set([1, 2])


def total(size, **options):
    assert torch.equal(hvd.allreduce(ONES, op=hvd.Sum, **options), ONES * size)


def refused(call):
    try:
        call()
    except hvd.HorovodInternalError as raised:
        print(f"rank {RANK}: {raised}", flush=True)
    else:
        raise AssertionError("nothing was raised")


def asynchronously():
    handle = hvd.allreduce_async(ONES, name="pair", process_set=pair)
    time.sleep(2 * PATIENCE)  # the progress thread waits by now
    hvd.synchronize(handle)


if HOW == "for-ever":
    if RANK == 0:
        refused(lambda: total(3, name="all"))
    elif RANK == 1:
        refused(lambda: hvd.remove_process_set(pair))
    else:
        refused(asynchronously)
elif HOW == "in-three-sets":
    if RANK == 0:
        refused(lambda: total(2, name="pair", process_set=pair))
    elif RANK == 1:
        refused(lambda: total(3, name="all"))
    else:
        refused(lambda: total(2, name="other", process_set=other))
elif HOW == "slow":
    # whoever is last has others wait in two groups for longer than the patience
    for slow in range(3):
        if slow == RANK:
            time.sleep(5 * PATIENCE)
        if RANK != 1:
            total(2, name="pair", process_set=pair)
        if RANK != 0:
            total(2, name="other", process_set=other)
        total(3, name="all")
else:
    # another thread comes with what is missing, long after all ranks stand still
    thread = None
    if RANK == 0:

        def late():
            time.sleep(8 * PATIENCE)
            total(2, name="pair", process_set=pair)

        thread = threading.Thread(target=late)
        thread.start()
    if RANK == 2:
        total(2, name="pair", process_set=pair)
    total(3, name="all")
    if thread is not None:
        thread.join()
hvd.shutdown()
hvd.init()
total(3, name="after")
print("rank done")
