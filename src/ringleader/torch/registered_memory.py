"""`registered_empty`: tensors in memory that all ranks of a host share."""

from __future__ import annotations

import math

import torch

from ringleader.collectives.process_lifecycle import PROCESS
from ringleader.torch.kernels import DTYPES


def registered_empty(*size: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor of undefined content whose reductions in place need no copies.

    ``size`` and ``dtype`` are those of `torch.empty`. Every rank calls this at the same point with the same
    ones. `allreduce_` of the tensor, or of the same part of it on every rank, is done where it lies; of 1 MiB
    on one host it takes a third of the time of an ordinary tensor. Where there is no shared memory, an
    ordinary tensor is returned. The memory is given back when the last tensor over it is gone on every
    rank and something else is registered, or by `shutdown`. (NCCL's word for such memory is a registered
    buffer.)
    """
    chosen = dtype or torch.get_default_dtype()
    if chosen not in DTYPES:
        raise ValueError(f"{chosen} is not a type that ranks can exchange")
    engine = PROCESS.get().engine
    region = engine.register(math.prod(size), DTYPES[chosen])
    memory: torch.Tensor = region.mine
    # Nobody but the tensor needs it: it goes with the first registration after the tensor's end.
    engine.release(region)
    return memory.view(size)
