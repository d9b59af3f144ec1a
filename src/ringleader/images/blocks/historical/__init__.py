"""How images of 2017 to 2019 did what blocks do: one function per block that then went another way.

Such an image has one account, root; the system's Python with packages beside its own; pinned packages of
NVIDIA's repositories; an Open MPI compiled where it runs; and an ssh key in a layer. `image check` prints
what it lacks.
"""

from __future__ import annotations

from ringleader.images.blocks.historical.nvidia import cuda, cudnn, nccl
from ringleader.images.blocks.historical.openmpi import mpi
from ringleader.images.blocks.historical.python import packages, python
from ringleader.images.blocks.historical.rdma import rdma
from ringleader.images.blocks.historical.ssh import sshd
from ringleader.images.blocks.historical.wheels import tensorflow, torch

__all__ = ["cuda", "cudnn", "mpi", "nccl", "packages", "python", "rdma", "sshd", "tensorflow", "torch"]
