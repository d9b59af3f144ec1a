"""What all ranks do together at the beginning and the end, and do not wait for long: some may be silent."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import numpy

END_SECONDS = 5.0
"""In which the last messages leave."""
LOOK_SECONDS = 0.001


def any_rank_says(world: Any, here: bool, seconds: float) -> bool:
    """Tell whether a rank says yes; where others do not answer within ``seconds``, what is said ``here``."""
    from mpi4py import MPI

    mine, all_of_us = numpy.array([int(here)]), numpy.zeros(1, dtype=numpy.int64)
    request = world.Iallreduce(mine, all_of_us, op=MPI.MAX)
    end = time.monotonic() + seconds
    while not request.Test():
        if time.monotonic() > end:
            return here
        time.sleep(LOOK_SECONDS)
    return bool(all_of_us[0])


def end_mpi() -> None:
    """Finalize MPI; the process ends with 0 where that takes longer than ``END_SECONDS``.

    Where a partner was silent nobody completes what it left.
    """
    from mpi4py import MPI

    sys.stdout.flush()
    timer = threading.Timer(END_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()
    MPI.Finalize()
    timer.cancel()
