"""A forked child of a rank ends in every way; the ranks continue without it. argv: how it ends."""

import os
import sys
import time

import torch

import ringleader.torch as hvd

hvd.init()
rank, size, ranks = hvd.rank(), hvd.size(), "OMPI_COMM_WORLD_SIZE" in os.environ
hvd.allreduce(torch.ones(3))
# The progress thread may be at work, and hold the engine's lock, in the moment of the fork.
handle = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="under way")


def child(how):
    """Do in a child what a script may do there."""
    assert (hvd.rank(), hvd.size()) == (rank, size)
    if ranks:
        for call in (
            lambda: hvd.allreduce(torch.ones(3)),
            lambda: hvd.allreduce_async(torch.ones(3)),
            hvd.barrier,
            lambda: hvd.synchronize(handle),
        )[: 3 if hvd.poll(handle) else 4]:
            try:
                call()
                sys.exit(41)
            except hvd.HorovodInternalError as error:
                if "was forked from a rank after hvd.init" not in str(error):
                    sys.exit(42)
    else:
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [1] * 3
    if how == "shuts down":
        hvd.shutdown()
        try:
            hvd.init()
        except RuntimeError as error:
            sys.exit(0 if "was forked from a rank" in str(error) and ranks else 43)
        sys.exit(44 if ranks else 0)
    if how == "raises":
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        raise RuntimeError("on purpose")
    sys.exit(0)


for how, code in (("exits", 0), ("raises", 1), ("shuts down", 0)):
    # Rank 0 has no child in the end, and waits for the others.
    if how == "shuts down" and rank == 0 and size > 1:
        continue
    pid = os.fork()
    if pid == 0:
        child(how)
    end, ended = time.monotonic() + 30, 0
    while not ended and time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)
    if not ended:
        os.kill(pid, 9)
        os._exit(45)
    assert os.waitstatus_to_exitcode(status) == code, (how, status)
assert hvd.synchronize(handle).tolist() == [size] * 3
assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [size] * 3
hvd.shutdown()
hvd.init()
assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [size] * 3
print("rank done", flush=True)
