"""The last rank leaves an operation by its own exception and lives on; the others are told at once.

argv: a directory for notes between the ranks.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from refusals import refused

import ringleader.torch as hvd


class Late(Exception):
    """What a script's time limit raises."""


def wait_for(path):
    """Wait for a note of another rank, without any help of the engine."""
    end = time.monotonic() + 60
    while not path.exists():
        if time.monotonic() > end:
            print(f"rank {hvd.rank()}: nobody wrote {path.name}", flush=True)
            os._exit(1)
        time.sleep(0.01)


notes = Path(sys.argv[1])
for kind in (Late, MemoryError, KeyboardInterrupt, RuntimeError):
    hvd.init()
    rank, last = hvd.rank(), hvd.size() - 1
    hvd.barrier()
    if rank == last:

        def handler(number, frame, kind=kind):
            raise kind("time limit")

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            hvd.allreduce(torch.ones(400_000), name="a")
            raise AssertionError("nobody else took part")
        except kind as error:
            assert str(error) == "time limit" or kind is RuntimeError, error
            if kind is RuntimeError:  # as the framework's own: an operation that failed
                assert isinstance(error, hvd.HorovodInternalError)
                assert str(error.__cause__) == "time limit"
        (notes / f"{kind.__name__} raised").touch()
        for other in range(last):
            wait_for(notes / f"{kind.__name__} told {other}")
        refused(hvd.HorovodInternalError, lambda: hvd.allreduce(torch.ones(3), name="b"), "time limit")
    else:
        wait_for(notes / f"{kind.__name__} raised")
        words = (f"rank {last} gave up in an operation", "allreduce.a")
        refused(hvd.HorovodInternalError, lambda: hvd.allreduce(torch.ones(400_000), name="a"), *words)
        (notes / f"{kind.__name__} told {rank}").touch()
    hvd.shutdown()
hvd.init()
assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3
print("rank done", flush=True)
