"""MPI's own end, which is not waited for long: where a partner was silent nobody completes what it left."""

from __future__ import annotations

import os
import sys
import threading

END_SECONDS = 5.0
"""In which the last messages leave."""


def end_mpi() -> None:
    """Finalize MPI; the process ends with 0 where that takes longer than ``END_SECONDS``."""
    from mpi4py import MPI

    sys.stdout.flush()
    timer = threading.Timer(END_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()
    MPI.Finalize()
    timer.cancel()
