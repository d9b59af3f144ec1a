"""Programs that the ranks of the tests run, as text for ``python -c``, and who can run them."""

import subprocess
import sys

import pytest

ALLREDUCE = """
import os, sys
from mpi4py import MPI
import numpy as np
world = MPI.COMM_WORLD
assert world.rank == int(os.environ["RANK"]) and world.size == int(os.environ["WORLD_SIZE"])
mine, total = np.full(1000, world.rank + 1.0), np.empty(1000)
world.Allreduce(mine, total)
assert (total == world.size * (world.size + 1) / 2).all()
node = world.Split_type(MPI.COMM_TYPE_SHARED)
window = MPI.Win.Allocate_shared(4096, 1, comm=node)
window.Free()
print(MPI.Get_library_version().splitlines()[0].strip(), world.rank, world.size, int(total[0]))
"""

ABORT = """
from mpi4py import MPI
import time
if MPI.COMM_WORLD.rank == 1:
    MPI.COMM_WORLD.Abort(5)
time.sleep(120)
"""

IN_MPI = """
import sys, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
print("up", flush=True)
time.sleep(120)  # ringleader-test-rank
"""


def interpreter_for(user):
    """Return an interpreter of our version that another user can run, and the path on which it finds us."""
    for python in dict.fromkeys((sys.executable, f"/usr/bin/python3.{sys.version_info[1]}")):
        words = (python, "-c", "import sys")
        try:
            if subprocess.run(words, user=user, group=user, extra_groups=[], cwd="/").returncode == 0:
                return python, ":".join(
                    entry for entry in sys.path if entry.endswith(("site-packages", "/src"))
                )
        except OSError:
            continue
    pytest.fail("no interpreter that an ordinary user can run: apt-get install python3")
