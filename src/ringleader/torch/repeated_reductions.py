"""Reductions in place that a script does again and again, of one tensor or of a group: each described once.

To describe one (checks, signature, digest) takes longer than to reduce a few KiB. So a description that was
used is kept, without its tensors, for tensors of the same types, shapes and names: of `allreduce_` in the
group of ranks, with what is prepared for the memory of tensors that it was used for; of a group of tensors as
single ones that are begun (`ringleader.adapters.handles.KeptReduction`), until it is asked for again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ringleader.adapters.handles import KEPT_GROUPS, PENDING, new_handle
from ringleader.adapters.process_sets import COUNTED, ProcessSet
from ringleader.engine.engine import Engine
from ringleader.engine.operations import ReduceOp, RepeatedWork, Work
from ringleader.engine.rank_group import Group
from ringleader.engine.transports.registered_memory import PreparedReduction
from ringleader.torch.kernels import dtype_name, flat_at

CAPACITY = 1024
"""Descriptions that a group of ranks keeps."""
ADDRESSES = 16
"""Addresses of tensors that are remembered with each."""
MOST_GROUPS = 256
"""Groups of tensors that are kept."""
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


class KeptGroup:
    """The works of a group, to be done again for tensors of the same types and shapes."""

    __slots__ = ("_arguments", "_engine", "_kinds", "_name", "_number", "_works")

    def __init__(
        self,
        engine: Engine,
        works: Sequence[Work],
        *,
        name: str,
        number: int | None,
        arguments: tuple[Any, ...],
        tensors: Sequence[torch.Tensor],
    ) -> None:
        """Keep ``works``, one for each tensor. ``arguments`` are those of the call but for tensors and name,
        ``number`` is that of the process set."""
        self._engine, self._works = engine, works
        self._name, self._number, self._arguments = name, number, arguments
        self._kinds = [(tensor.dtype, tensor.shape) for tensor in tensors]
        for work in works:
            work.repeated = True

    def fits(self, tensors: Sequence[torch.Tensor], arguments: tuple[Any, ...]) -> bool:
        """Return whether the works do for these tensors what would be described anew."""
        if arguments != self._arguments or len(tensors) != len(self._kinds):
            return False
        return all(
            tensor.dtype is dtype and tensor.shape == shape and _in_place(tensor)
            for tensor, (dtype, shape) in zip(tensors, self._kinds, strict=True)
        )

    def begin(self, tensors: Sequence[torch.Tensor]) -> int:
        """Ask for the reductions of these tensors and return a handle."""
        COUNTED[self._number] += 1
        for work, tensor in zip(self._works, tensors, strict=True):
            work.array = work.out = tensor
        self._engine.submit_all(self._works)
        return new_handle(self._engine, self._works, self.result(tensors))

    def result(self, tensors: Sequence[torch.Tensor]) -> partial[tuple[torch.Tensor, ...]]:
        """Return what returns the tensors when they are reduced, and keeps the group without them."""
        return partial(self._keep, tuple(tensors))

    def _keep(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        for work in self._works:
            work.array = work.out = None
        if len(KEPT_GROUPS) >= MOST_GROUPS:
            KEPT_GROUPS.clear()
        KEPT_GROUPS[self._name] = self
        return tensors


def begin_kept(name: str | None, tensors: Sequence[torch.Tensor], arguments: tuple[Any, ...]) -> int | None:
    """Begin a group that was done before, and return its handle; None where it is to be described."""
    kept: KeptGroup | None = KEPT_GROUPS.pop(name, None) if isinstance(name, str) else None
    return kept.begin(tensors) if kept is not None and kept.fits(tensors, arguments) else None


def keep_group(
    handle: int,
    name: str | None,
    tensors: Sequence[torch.Tensor],
    process_set: ProcessSet,
    arguments: tuple[Any, ...],
) -> None:
    """Have a group that was begun be kept when it is done, if the engine works on the tensors themselves."""
    pending = PENDING[handle]
    assert isinstance(pending, tuple)
    engine, works, _result = pending
    own = all(work.out is tensor and _in_place(tensor) for work, tensor in zip(works, tensors, strict=True))
    if isinstance(name, str) and own and works and works[0].signature.op is not ReduceOp.ADASUM:
        number = process_set.process_set_id
        kept = KeptGroup(engine, works, name=name, number=number, arguments=arguments, tensors=tensors)
        PENDING[handle] = (engine, works, kept.result(tensors))


def _in_place(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's memory holds its values as they are, and may be written to."""
    return (
        tensor.__class__ is torch.Tensor
        and tensor.layout is _STRIDED
        and tensor.is_cpu
        and tensor.is_contiguous()
        and not tensor.requires_grad
        and not tensor.is_neg()
    )
