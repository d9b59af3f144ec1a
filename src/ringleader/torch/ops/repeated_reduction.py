"""Reductions in place that a script does again and again: each is described once.

To describe one (checks, signature, digest) takes longer than to reduce a few KiB. So a description that was
used is kept in the group, without its tensor, for tensors of the same type, shape and name.
"""

from __future__ import annotations

from typing import Any

import torch

from ringleader.collectives.operations import ReduceOp, Work
from ringleader.collectives.rank_group import Group
from ringleader.torch.kernels import dtype_name, flat_at

CAPACITY = 1024
"""Descriptions that a group keeps."""
ADDRESSES = 16
"""Addresses of tensors that are remembered with each."""
_STRIDED = torch.strided


class RepeatedReduction:
    """A description, and views of the memory of tensors that it was used for."""

    __slots__ = ("_count", "_dtype", "_flats", "op", "postscale", "prescale", "work")

    def __init__(self, work: Work, tensor: torch.Tensor) -> None:
        """Keep the description of what was done to ``tensor``."""
        self.work = work
        signature = work.signature
        self.op, self.prescale, self.postscale = signature.op, signature.prescale, signature.postscale
        self._dtype, self._count = dtype_name(tensor), tensor.numel()
        # These do not keep the memory: they are used only while a tensor of this type and length is there.
        self._flats: dict[int, Any] = {}

    def flat(self, tensor: torch.Tensor) -> Any:
        """Return the view of a tensor's memory, where the transports can use one; else None."""
        address = tensor.data_ptr()
        known = self._flats.get(address)
        if known is None:
            if len(self._flats) >= ADDRESSES:
                self._flats.clear()
            known = self._flats[address] = flat_at(address, self._dtype, self._count)
        return known


def take_reduction(
    group: Group,
    tensor: torch.Tensor,
    name: str | None,
    op: ReduceOp,
    prescale: float,
    postscale: float,
) -> RepeatedReduction | None:
    """Return the description of such a reduction, which is this caller's until it is kept again."""
    if tensor.__class__ is not torch.Tensor:
        return None
    known: RepeatedReduction | None = group.reductions.pop((tensor.dtype, tensor.shape, name), None)
    if known is None or not (
        op is known.op
        and prescale == known.prescale
        and postscale == known.postscale
        and tensor.layout is _STRIDED
        and tensor.is_contiguous()
        and tensor.is_cpu
        and not tensor.requires_grad
        and not tensor.is_neg()
    ):
        return None
    return known


def keep_reduction(group: Group, tensor: torch.Tensor, name: str | None, known: RepeatedReduction) -> None:
    """Keep a description for the next time; its tensor may go."""
    work = known.work
    work.array = work.out = work.flat = None
    reductions = group.reductions
    if len(reductions) >= CAPACITY:
        reductions.clear()
    reductions[(tensor.dtype, tensor.shape, name)] = known


def can_be_repeated(work: Work, tensor: torch.Tensor) -> bool:
    """Return whether what was done to a tensor may be kept: the engine worked on the tensor itself.

    Whether Adasum can be had depends on more than the tensor, and is checked each time.
    """
    own = work.out is tensor and tensor.__class__ is torch.Tensor and work.signature.device == "cpu"
    return own and work.signature.op is not ReduceOp.ADASUM and tensor.numel() > 0
