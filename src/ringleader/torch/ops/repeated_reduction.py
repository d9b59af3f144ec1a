"""Reductions in place that a script does again and again: each is described once.

To describe one (checks, signature, digest) takes longer than to reduce a few KiB. So a description that was
used is kept in the group, without its tensor, for tensors of the same type, shape and name. It is taken out
while it is in use, so that no two threads have the same.
"""

from __future__ import annotations

from typing import Any

import torch

from ringleader.collectives.operations import ReduceOp, RepeatedWork, Work
from ringleader.collectives.rank_group import Group
from ringleader.torch.kernels import dtype_name, flat_at

CAPACITY = 1024
"""Descriptions that a group keeps."""
ADDRESSES = 16
"""Addresses of tensors that are remembered with each."""
_STRIDED = torch.strided

_Key = tuple[torch.dtype, torch.Size, str | None]


class RepeatedReduction:
    """A description, and views of the memory of tensors that it was used for."""

    __slots__ = ("_count", "_dtype", "_flats", "_key", "_op", "_postscale", "_prescale", "_work")

    def __init__(self, work: Work, tensor: torch.Tensor) -> None:
        """Keep the description of what was done to ``tensor``."""
        self._work = RepeatedWork(work)
        signature = work.signature
        self._key: _Key = (tensor.dtype, tensor.shape, work.local_name)
        self._op, self._prescale, self._postscale = signature.op, signature.prescale, signature.postscale
        self._dtype, self._count = dtype_name(tensor), tensor.numel()
        # These do not keep the memory: they are used only while a tensor of this type and length is there.
        self._flats: dict[int, Any] = {}

    def work_for(
        self, tensor: torch.Tensor, serial: int, op: ReduceOp, prescale: float, postscale: float
    ) -> Work | None:
        """Return the work that reduces a tensor of this type and shape, None where anything else differs."""
        if (
            op is not self._op
            or prescale != self._prescale
            or postscale != self._postscale
            or tensor.layout is not _STRIDED
            or not tensor.is_contiguous()
            or tensor.is_neg()
        ):
            return None
        flat = self._flats.get(address := tensor.data_ptr())
        if flat is None:  # else memory of the host lies there, and what autograd knows of it does not matter
            if tensor.requires_grad or not tensor.is_cpu:
                return None
            if len(self._flats) >= ADDRESSES:
                self._flats.clear()
            flat = self._flats[address] = flat_at(address, self._dtype, self._count)
        work = self._work
        work.repeat(serial, tensor, flat)
        return work

    def keep(self, group: Group) -> None:
        """Keep the description for the next time; its tensor may go."""
        work, kept = self._work, group.reductions
        work.array = work.out = work.flat = None
        if len(kept) >= CAPACITY:
            kept.clear()
        kept[self._key] = self


def take_reduction(group: Group, tensor: torch.Tensor, name: str | None) -> RepeatedReduction | None:
    """Return how such a tensor was reduced before; it is this caller's until it is kept again."""
    if tensor.__class__ is not torch.Tensor:
        return None
    known: RepeatedReduction | None = group.reductions.pop((tensor.dtype, tensor.shape, name), None)
    return known


def can_be_repeated(work: Work, tensor: torch.Tensor) -> bool:
    """Return whether what was done to a tensor may be kept: the engine worked on the tensor itself.

    Whether Adasum can be had depends on more than the tensor, and is checked each time.
    """
    own = work.out is tensor and tensor.__class__ is torch.Tensor and work.signature.device == "cpu"
    return own and work.signature.op is not ReduceOp.ADASUM and tensor.numel() > 0
