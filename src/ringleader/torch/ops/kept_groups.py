"""Groups of tensors that a script reduces in place under a name again and again: described once.

As for single ones (`ringleader.common.handles.KeptReduction`) a group that is done is kept, without its
tensors, until a like one is asked for under the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.operations import ReduceOp, Work
from ringleader.common.handles import KEPT_GROUPS, PENDING, new_handle
from ringleader.common.process_sets import COUNTED, ProcessSet

CAPACITY = 256
"""Groups that are kept."""
_STRIDED = torch.strided


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
        if len(KEPT_GROUPS) >= CAPACITY:
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
