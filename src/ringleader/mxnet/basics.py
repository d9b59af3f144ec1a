"""Which GPUs MXNet is built for."""

from __future__ import annotations


def cuda_built(verbose: bool = False) -> bool:
    """Return whether arrays of CUDA devices can be exchanged: MXNet's cannot."""
    return False


def rocm_built(verbose: bool = False) -> bool:
    """Return whether arrays of ROCm devices can be exchanged: MXNet's cannot."""
    return False
