"""What scripts ask about how tensors can travel. Nothing is compiled here: what is installed counts."""

from __future__ import annotations

import torch

from ringleader.common import util


def mpi_built() -> bool:
    """Return whether MPI can carry tensors."""
    return util.mpi_built()


def mpi_enabled() -> bool:
    """Return whether ranks find each other by MPI: always, where it is installed."""
    return util.mpi_built()


def gloo_built() -> bool:
    """Return whether Gloo carries tensors in place of MPI: never."""
    return util.gloo_built()


def gloo_enabled() -> bool:
    """Return whether ranks find each other by Gloo: never."""
    return util.gloo_built()


def nccl_built() -> int:
    """Return the version code of the NCCL that this PyTorch brings for tensors of a GPU, 0 where it has none.

    The code is NCCL's own (``NCCL_VERSION`` of nccl.h): 22304 for 2.23.4, and 2708 for 2.7.8.
    """
    if torch.version.cuda is None or not torch.distributed.is_available():
        return 0
    if not torch.distributed.is_nccl_available():
        return 0
    major, minor, patch = (*torch.cuda.nccl.version(), 0, 0)[:3]  # type: ignore[no-untyped-call]
    if (major, minor) <= (2, 8):
        return int(major * 1000 + minor * 100 + patch)
    return int(major * 10000 + minor * 100 + patch)


def ddl_built() -> bool:
    """Return whether IBM's DDL is used: never."""
    return util.ddl_built()


def ccl_built() -> bool:
    """Return whether oneCCL is used: never."""
    return util.ccl_built()


def cuda_built() -> bool:
    """Return whether this PyTorch has tensors on GPUs of Nvidia."""
    return torch.version.cuda is not None


def rocm_built() -> bool:
    """Return whether this PyTorch has tensors on GPUs of AMD."""
    return torch.version.hip is not None
