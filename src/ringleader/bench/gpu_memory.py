"""Memory of a GPU for messages, where the MPI takes it, or why there is none."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_CUDA_OF_MPICH = 0
"""MPIX_GPU_SUPPORT_CUDA of MPICH's mpi.h."""


@dataclass(frozen=True, kw_only=True)
class GpuMemory:
    """The memory of the GPU that this rank uses."""

    device: str
    """``NVIDIA H200``."""
    index: int
    """Of that device, as this process counts them."""
    allocate: Callable[[int], Any]
    """Bytes → a tensor of so many, written to."""
    mpi_takes_it: bool
    """Else NCCL sends it."""


class NoGpuMemoryError(Exception):
    """This rank cannot send from a GPU's memory; the text says why."""


def gpu_memory(environ: Mapping[str, str] = os.environ) -> GpuMemory:
    """Return the memory of this rank's GPU. Raises NoGpuMemoryError.

    MPI must have been initialised: only then it says whether it takes such memory.
    """
    try:
        import torch
    except ImportError:
        raise NoGpuMemoryError("PyTorch is not installed, and it is what gives memory of a GPU") from None
    if not torch.cuda.is_available():
        raise NoGpuMemoryError("PyTorch finds no GPU")
    mpi_takes_it = takes_gpu_memory()
    if not mpi_takes_it and not (torch.distributed.is_available() and torch.distributed.is_nccl_available()):
        from mpi4py import MPI

        name = MPI.Get_library_version().partition(",")[0].strip()
        raise NoGpuMemoryError(f"this MPI ({name}) does not take memory of a GPU, and PyTorch has no NCCL")
    count = torch.cuda.device_count()
    index = int(environ.get("LOCAL_RANK", "0")) % count if count > 1 else 0
    torch.cuda.set_device(index)

    def allocate(size: int) -> Any:
        memory = torch.ones(size, dtype=torch.uint8, device=f"cuda:{index}")
        torch.cuda.synchronize()
        return memory

    name = str(torch.cuda.get_device_name(index))
    return GpuMemory(device=name, index=index, allocate=allocate, mpi_takes_it=mpi_takes_it)


def takes_gpu_memory() -> bool:
    """Tell whether the MPI of this process says that it takes CUDA memory."""
    library = ctypes.CDLL(os.environ.get("MPI4PY_LIBMPI") or None)
    try:
        return bool(library.MPIX_Query_cuda_support())
    except AttributeError:  # not Open MPI
        answer = ctypes.c_int(0)
        try:
            failed = library.MPIX_GPU_query_support(_CUDA_OF_MPICH, ctypes.byref(answer))
        except AttributeError:
            return False
        return failed == 0 and bool(answer.value)
