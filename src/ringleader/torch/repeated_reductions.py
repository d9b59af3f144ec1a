"""Reductions of tensors in host memory that a script does again and again, each described once.

To describe one (checks, signature, digest) takes longer than to reduce a few KiB. So a description that was
used is kept in the group of ranks, without its tensors, for tensors of the same type, shape and name. What is
begun and waited for later is kept in `ringleader.adapters.handles`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ringleader.adapters.process_sets import ProcessSet, begin_operation
from ringleader.adapters.recycled_results import LEAST_BYTES
from ringleader.engine.group_engine import Engine
from ringleader.engine.operations import ReduceOp, Work
from ringleader.engine.rank_group import Group
from ringleader.engine.transports.transport import Bound
from ringleader.torch.differentiable import OPERATIONS, into_tensor
from ringleader.torch.recycled_storages import result_like
from ringleader.torch.torch_kernels import dtype_name, flat_at

CAPACITY = 1024
"""Descriptions that a group of ranks keeps."""
ADDRESSES = 16
"""Pairs of addresses, of a tensor and its result, that are remembered with each."""
_STRIDED = torch.strided
_describe, _describe_in_place = OPERATIONS.allreduce.describe, OPERATIONS.allreduce_in_place.describe

_Key = tuple[torch.dtype, torch.Size, str | None]


def reduced(
    tensor: torch.Tensor,
    in_place: bool,
    name: str | None,
    process_set: ProcessSet,
    op: ReduceOp,
    prescale: float,
    postscale: float,
) -> torch.Tensor:
    """Return the reduction of a tensor, apart from autograd: the tensor itself if it is ``in_place``."""
    # Not `Operation.run`: what the most frequent operation costs besides the exchange counts.
    group, serial = begin_operation(process_set, "Allreduce")
    plain = tensor.__class__ is torch.Tensor
    known = group.reductions.get((tensor.dtype, tensor.shape, name)) if plain else None
    if known is not None:
        again: torch.Tensor | None = known.run(tensor, in_place, serial, op, prescale, postscale)
        if again is not None:
            return again
    describe = _describe_in_place if in_place else _describe
    work = describe(group, tensor, name, serial, op, prescale, postscale)
    group.engine.run(work)
    if can_be_repeated(work, tensor) and (known is None or not known.describes(work)):
        RepeatedReduction(group.engine, work, tensor).keep(group)
    if in_place:
        return into_tensor(work, tensor)
    result: torch.Tensor = work.out
    return result


class RepeatedReduction:
    """A description, and what is bound to the memory of tensors that it was used for."""

    __slots__ = (
        *("_binds", "_bound", "_count", "_dtype", "_engine", "_is_busy", "_key", "_like"),
        *("_op", "_postscale", "_prescale", "_run", "_work"),
    )

    def __init__(self, engine: Engine, work: Work, tensor: torch.Tensor) -> None:
        """Keep the description of what the engine did to ``tensor``."""
        self._engine, self._run, self._is_busy = engine, engine.run_again, engine.is_busy
        self._work = work.with_arrays(None, None)
        signature = work.signature
        self._key: _Key = (tensor.dtype, tensor.shape, work.local_name)
        self._op, self._prescale, self._postscale = signature.op, signature.prescale, signature.postscale
        self._dtype, self._count = dtype_name(tensor), tensor.numel()
        self._like = result_like if tensor.nbytes >= LEAST_BYTES else torch.empty_like
        # This does not keep the memory: it is used only while tensors of this type and length are there.
        self._bound: dict[Any, Bound] = {}
        self._binds = True

    def run(
        self,
        tensor: torch.Tensor,
        in_place: bool,
        serial: int,
        op: ReduceOp,
        prescale: float,
        postscale: float,
    ) -> torch.Tensor | None:
        """Return the reduction of a tensor of this type and shape.

        None, with nothing done, where it is to be described anew: anything else differs, or the engine is
        busy.
        """
        if (
            op is not self._op
            or prescale != self._prescale
            or postscale != self._postscale
            or tensor.layout is not _STRIDED
            or not tensor.is_cpu
            or not tensor.is_contiguous()
            or tensor.is_neg()
            or (tensor.requires_grad and not self._bound)
        ):
            return None
        key: Any = tensor.data_ptr()
        out = tensor
        if not in_place:
            if self._is_busy():
                return None
            out = self._like(tensor)
            key = key, out.data_ptr()
        bound = self._bound.get(key)
        # Where something is bound to this memory, what autograd knows does not matter.
        if bound is None and tensor.requires_grad:
            return None
        bind = partial(self._bind, key) if bound is None and self._binds else None
        return out if self._run(self._work, serial, tensor, out, bound, bind) else None

    def _bind(self, key: Any, tensor: torch.Tensor, out: torch.Tensor) -> Bound | None:
        """Return what does the reduction in the memory of these tensors; remember it where it keeps none.

        ``key``: their addresses, as `run` looks for them.
        """
        source: Any
        target: Any
        source, target = (flat_at(one.data_ptr(), self._dtype, self._count) for one in (tensor, out))
        is_memory = source is not None
        if not is_memory:
            source, target = tensor.view(-1), out.view(-1)
        address = 0
        if out is tensor:
            target, address = source, key
        bound = self._engine.bind(self._work.signature, source, target, address)
        if bound is None:  # and so it is for any memory
            self._binds = False
        elif is_memory:
            if len(self._bound) >= ADDRESSES:
                self._bound.clear()
            self._bound[key] = bound
        return bound

    def describes(self, work: Work) -> bool:
        """Return whether this is the description of what was done."""
        return self._work.signature is work.signature

    def keep(self, group: Group) -> None:
        """Keep the description for the next time."""
        kept = group.reductions
        if len(kept) >= CAPACITY:
            kept.clear()
        kept[self._key] = self


def as_it_is(tensor: torch.Tensor) -> bool:
    """Return whether the engine can work on the tensor itself: its values are in host memory as they are."""
    return (
        tensor.__class__ is torch.Tensor
        and tensor.layout is _STRIDED
        and tensor.is_cpu
        and tensor.is_contiguous()
        and not tensor.requires_grad
        and not tensor.is_neg()
    )


def can_be_repeated(work: Work, tensor: torch.Tensor) -> bool:
    """Return whether what was done to a tensor may be kept: the engine worked on the tensor itself.

    Whether Adasum can be had depends on more than the tensor, and is checked each time.
    """
    own = work.array is tensor and tensor.__class__ is torch.Tensor and work.signature.device == "cpu"
    return own and work.signature.op is not ReduceOp.ADASUM and tensor.numel() > 0
