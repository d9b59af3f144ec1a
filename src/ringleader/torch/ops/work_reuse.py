"""Descriptions of reductions that come again in every step: see `ringleader.common.work_cache`."""

from __future__ import annotations

import torch

from ringleader.collectives.operations import ReduceOp, Work
from ringleader.common.work_cache import WORKS
from ringleader.torch.kernels import DTYPES

_STRIDED = torch.strided


def take_work(
    name: str | None, tensor: torch.Tensor, op: ReduceOp | None, prescale: float, postscale: float
) -> Work | None:
    """Return a work that reduces ``tensor`` in place if one like it was done under this name."""
    work = WORKS.pop(name, None)
    if work is None:
        return None
    signature = work.signature
    if (
        tensor.layout is not _STRIDED
        or not tensor.is_cpu
        or tensor.requires_grad
        or op is not signature.op
        or DTYPES.get(tensor.dtype) != signature.dtype
        or tensor.shape != signature.shape
        or prescale != signature.prescale
        or postscale != signature.postscale
        or not tensor.is_contiguous()
        or tensor.is_neg()
    ):
        return None
    work.array = work.out = tensor
    return work
