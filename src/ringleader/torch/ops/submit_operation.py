"""From a script's tensors to works in the engine: every operation of every kind is submitted here.

An operation is on one tensor or on a group of them, whose members are known as ``<name>_<i>of<n>`` and are
seen by the ranks all or none. Types and shapes may differ within a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.operations import ReduceOp, Signature, Work, signature_digest
from ringleader.common.process_sets import ProcessSet, group_of, next_serial
from ringleader.torch.kernels import dtype_name
from ringleader.torch.ops.handles import finish, new_handle, synchronize

_STRIDED = torch.strided


def into_tensor(work: Work, tensor: torch.Tensor) -> torch.Tensor:
    """Return the script's own tensor with the result in it, wherever the engine worked."""
    out: torch.Tensor = work.out
    if out is not tensor and out.data_ptr() != tensor.data_ptr():
        with torch.no_grad():
            tensor.copy_(out)
    return tensor


class Operation:
    """One kind of operation: how a tensor becomes a work, and a finished work the script's result."""

    def __init__(
        self,
        title: str,
        describe: Callable[..., Work],
        *,
        result: Callable[[Work, torch.Tensor], Any] | None = None,
        broadcasts: bool = False,
    ) -> None:
        """``title`` begins the messages of errors.

        ``describe`` takes this rank's part in the process set, the tensor, its name, the operation's number,
        and then the arguments of this kind of operation; it raises what is wrong with them. ``result``
        returns the script's result for a finished work and the tensor; None for the new tensor that the
        work made. ``broadcasts``: the engine for broadcasts does it.
        """
        self._title = title
        self._describe = describe
        self._result = result
        self._broadcasts = broadcasts

    def run(self, tensor: torch.Tensor, name: str | None, process_set: ProcessSet, *arguments: Any) -> Any:
        """Do the operation on one tensor and return its result."""
        # The steps of `_one`: what the most frequent operations cost besides the exchange counts.
        serial = next_serial(process_set.process_set_id)
        group = group_of(process_set, self._title)
        work = self._describe(group, tensor, name, serial, *arguments)
        (group.broadcaster if self._broadcasts else group.engine).run(work)
        return work.out if self._result is None else self._result(work, tensor)

    def begin(self, tensor: torch.Tensor, name: str | None, process_set: ProcessSet, *arguments: Any) -> int:
        """Begin the operation on one tensor and return a handle.

        A name that is pending here is a `ValueError`.
        """
        engine, work = self._one(tensor, name, process_set, arguments)
        engine.submit(work)
        if self._result is None:
            return new_handle(engine, (work,), lambda: work.out)
        result = self._result
        return new_handle(engine, (work,), lambda: result(work, tensor))

    def run_group(
        self, tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet, *arguments: Any
    ) -> tuple[Any, ...]:
        """Do the operation on several tensors and return their results."""
        results: tuple[Any, ...] = synchronize(self.begin_group(tensors, name, process_set, *arguments))
        return results

    def begin_group(
        self, tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet, *arguments: Any
    ) -> int:
        """Begin the operation on several tensors and return one handle, for a tuple of the results."""
        tensors = tuple(tensors)
        engine, works = self._group(tensors, name, process_set, arguments)
        engine.submit_all(works)
        return new_handle(engine, works, lambda: self._results(works, tensors))

    def works(
        self,
        tensors: Sequence[torch.Tensor],
        name: str | None,
        process_set: ProcessSet,
        arguments: tuple[Any, ...],
        *,
        grouped: bool,
    ) -> list[Work]:
        """Do the operation on a group, or on the one tensor unless ``grouped``; return the finished works."""
        if not grouped:
            engine, work = self._one(tensors[0], name, process_set, arguments)
            engine.run(work)
            return [work]
        engine, works = self._group(tensors, name, process_set, arguments)
        engine.submit_all(works)
        finish(engine, works)
        return works

    def _one(
        self, tensor: torch.Tensor, name: str | None, process_set: ProcessSet, arguments: tuple[Any, ...]
    ) -> tuple[Engine, Work]:
        serial = next_serial(process_set.process_set_id)
        group = group_of(process_set, self._title)
        engine = group.broadcaster if self._broadcasts else group.engine
        return engine, self._describe(group, tensor, name, serial, *arguments)

    def _group(
        self,
        tensors: Sequence[torch.Tensor],
        name: str | None,
        process_set: ProcessSet,
        arguments: tuple[Any, ...],
    ) -> tuple[Engine, list[Work]]:
        serial = next_serial(process_set.process_set_id)
        group = group_of(process_set, self._title)
        base = f"noname.{serial}" if name is None else name
        works = [
            self._describe(group, tensor, f"{base}_{at}of{len(tensors)}", serial, *arguments)
            for at, tensor in enumerate(tensors, 1)
        ]
        return group.broadcaster if self._broadcasts else group.engine, works

    def _results(self, works: Sequence[Work], tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        if self._result is None:
            return tuple(work.out for work in works)
        return tuple(map(self._result, works, tensors))


class DifferentiableOperation(torch.autograd.Function):
    """Operations whose gradients are operations too; a subclass says which."""

    operation: Operation

    @staticmethod
    def gradients(
        grads: list[torch.Tensor],
        received: list[tuple[int, ...]],
        process_set: ProcessSet,
        arguments: tuple[Any, ...],
        grouped: bool,
    ) -> Sequence[torch.Tensor]:
        """Return the gradients of the inputs for those of the outputs. Collective.

        ``received`` are the rows that came from each rank, for each output; ``arguments`` are those of the
        operation, which was on a group of tensors if ``grouped``.
        """
        raise NotImplementedError

    @classmethod
    def run(cls, tensor: torch.Tensor, name: str | None, process_set: ProcessSet, *arguments: Any) -> Any:
        """Do the operation on one tensor; the result is differentiable if the tensor is."""
        if tensor.requires_grad and torch.is_grad_enabled():
            return cls.apply(cls, name, process_set, arguments, False, tensor)[0]  # type: ignore[no-untyped-call]
        return cls.operation.run(tensor, name, process_set, *arguments)

    @classmethod
    def run_group(
        cls, tensors: Sequence[torch.Tensor], name: str | None, process_set: ProcessSet, *arguments: Any
    ) -> list[torch.Tensor]:
        """Do the operation on several tensors; the results are differentiable if one of the tensors is."""
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return list(cls.apply(cls, name, process_set, arguments, True, *tensors))  # type: ignore[no-untyped-call]
        return list(cls.operation.run_group(tensors, name, process_set, *arguments))

    @staticmethod
    def forward(
        ctx: Any,
        cls: type[DifferentiableOperation],
        name: str | None,
        process_set: ProcessSet,
        arguments: tuple[Any, ...],
        grouped: bool,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Do the operation."""
        works = cls.operation.works(tensors, name, process_set, arguments, grouped=grouped)
        ctx.facts = (cls, [work.received for work in works], process_set, arguments, grouped)
        return tuple(work.out for work in works)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        """Return the gradients of all tensors that have one."""
        cls, received, *rest = ctx.facts
        there = [at for at, grad in enumerate(grads) if grad is not None and grad.is_floating_point()]
        done = cls.gradients([grads[at] for at in there], [received[at] for at in there], *rest)
        found = dict(zip(there, done, strict=True))
        return (None, None, None, None, None, *(found.get(at) for at in range(len(grads))))


# descriptions


@lru_cache(maxsize=4096)
def signature_for(
    kind: str,
    dtype: str,
    shape: tuple[int, ...],
    device: str,
    op: ReduceOp,
    root: int,
    prescale: float,
    postscale: float,
    note: str,
) -> tuple[Signature, int]:
    """Return a signature and its digest. Kept, as most operations of a training come again in every step."""
    signature = Signature(
        kind=kind,
        dtype=dtype,
        shape=tuple(shape),
        device=device,
        op=op,
        root=root,
        prescale=prescale,
        postscale=postscale,
        note=note,
    )
    return signature, signature_digest(signature)


def work_for(
    kind: str,
    tensor: torch.Tensor,
    out: torch.Tensor | None,
    *,
    name: str | None,
    serial: int,
    op: ReduceOp = ReduceOp.SUM,
    root: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    note: str = "",
    splits: tuple[int, ...] | None = None,
) -> Work:
    """Describe an operation on a tensor that `contiguous` returned."""
    shape = tensor.shape[1:] if kind in ("allgather", "alltoall") else tensor.shape
    device = "cpu" if tensor.is_cpu else tensor.device.type
    signature, digest = signature_for(
        kind, dtype_name(tensor), shape, device, op, root, prescale, postscale, note
    )
    return Work(signature, digest, name=name, serial=serial, array=tensor, out=out, splits=splits)


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's values, apart from autograd, in contiguous memory on the same device.

    That is the tensor's own memory where it can be, else a copy. `ValueError` for tensors that have none.
    """
    if tensor.layout is not _STRIDED:
        raise ValueError(f"a tensor of layout {tensor.layout} is not strided; pass its dense form")
    if not tensor.is_cpu and not tensor.is_cuda:
        raise ValueError(f"tensors on {tensor.device.type} devices are not supported; move them to the CPU")
    data = tensor.detach() if tensor.requires_grad else tensor
    if not data.is_contiguous():
        data = data.contiguous()
    return data.resolve_neg() if data.is_neg() else data
