"""Reductions in place that a script does again and again: each is described once.

To describe one (checks, signature, digest) takes longer than to reduce a few KiB. So a description that was
used is kept in the group, without its tensor, for tensors of the same type, shape and name, with what is
prepared for the memory of tensors that it was used for.
"""

from __future__ import annotations

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.operations import ReduceOp, RepeatedWork, Work
from ringleader.collectives.rank_group import Group
from ringleader.collectives.transports.registered_memory import PreparedReduction
from ringleader.torch.kernels import dtype_name, flat_at

CAPACITY = 1024
"""Descriptions that a group keeps."""
ADDRESSES = 16
"""Addresses of tensors that are remembered with each."""
_STRIDED = torch.strided

_Key = tuple[torch.dtype, torch.Size, str | None]


class RepeatedReduction:
    """A description, and what is prepared for the memory of tensors that it was used for."""

    __slots__ = ("_again", "_count", "_dtype", "_key", "_op", "_postscale", "_prepared", "_prescale", "_run")

    def __init__(self, engine: Engine, work: Work, tensor: torch.Tensor) -> None:
        """Keep the description of what the engine did to ``tensor``."""
        self._run = engine.run_again
        self._again = RepeatedWork(work)
        signature = work.signature
        self._key: _Key = (tensor.dtype, tensor.shape, work.local_name)
        self._op, self._prescale, self._postscale = signature.op, signature.prescale, signature.postscale
        self._dtype, self._count = dtype_name(tensor), tensor.numel()
        # This does not keep the memory: it is used only while a tensor of this type and length is there.
        self._prepared: dict[int, PreparedReduction] = {}

    def run(self, tensor: torch.Tensor, serial: int, op: ReduceOp, prescale: float, postscale: float) -> bool:
        """Reduce a tensor of this type and shape.

        Return False, with nothing done, where it is to be described anew: anything else differs, or the
        engine is busy.
        """
        if (
            op is not self._op
            or prescale != self._prescale
            or postscale != self._postscale
            or tensor.layout is not _STRIDED
            or not tensor.is_contiguous()
            or tensor.is_neg()
        ):
            return False
        prepared = self._prepared.get(address := tensor.data_ptr())
        if prepared is None:  # else memory of the host lies there, and what autograd knows does not matter
            if tensor.requires_grad or not tensor.is_cpu:
                return False
            if len(self._prepared) >= ADDRESSES:
                self._prepared.clear()
            flat = flat_at(address, self._dtype, self._count)
            prepared = self._prepared[address] = PreparedReduction(flat)
        return self._run(self._again, serial, tensor, prepared)

    def describes(self, work: Work) -> bool:
        """Return whether this is the description of what was done."""
        return self._again.signature is work.signature

    def keep(self, group: Group) -> None:
        """Keep the description for the next time."""
        kept = group.reductions
        if len(kept) >= CAPACITY:
            kept.clear()
        kept[self._key] = self


def known_reduction(group: Group, tensor: torch.Tensor, name: str | None) -> RepeatedReduction | None:
    """Return how such a tensor was reduced before."""
    if tensor.__class__ is not torch.Tensor:
        return None
    known: RepeatedReduction | None = group.reductions.get((tensor.dtype, tensor.shape, name))
    return known


def can_be_repeated(work: Work, tensor: torch.Tensor) -> bool:
    """Return whether what was done to a tensor may be kept: the engine worked on the tensor itself.

    Whether Adasum can be had depends on more than the tensor, and is checked each time.
    """
    own = work.out is tensor and tensor.__class__ is torch.Tensor and work.signature.device == "cpu"
    return own and work.signature.op is not ReduceOp.ADASUM and tensor.numel() > 0
