"""In place of tf_cnn_benchmarks.py: all ranks add up a gradient of ResNet-101's size, and rank 0 says so."""

from __future__ import annotations

import socket
import sys

import numpy
from mpi4py import MPI

PARAMETERS = 44_549_160

world = MPI.COMM_WORLD
total = numpy.empty(PARAMETERS, dtype=numpy.float32)
world.Allreduce(numpy.full(PARAMETERS, world.rank + 1, dtype=numpy.float32), total)
hosts = world.gather(socket.gethostname())
if world.rank == 0:
    print(f"arguments: {' '.join(sys.argv[1:])}")
    print(f"hosts: {' '.join(hosts or ())}")
    print(f"sum: {total.min():g} to {total.max():g}", flush=True)
