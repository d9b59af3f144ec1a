"""From a script's tensors to works: operations that autograd knows, and how a tensor is described."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ringleader.collectives.operations import Work
from ringleader.collectives.process_lifecycle import PROCESS
from ringleader.common.process_sets import ProcessSet
from ringleader.common.submit_operation import Operation, describe_work
from ringleader.torch.kernels import TorchKernels, dtype_name

_STRIDED = torch.strided


def into_tensor(work: Work, tensor: torch.Tensor) -> torch.Tensor:
    """Return the script's own tensor with the result in it, wherever the engine worked."""
    out: torch.Tensor = work.out
    if out is not tensor and out.data_ptr() != tensor.data_ptr():
        with torch.no_grad():
            tensor.copy_(out)
    return tensor


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


def work_for(kind: str, tensor: torch.Tensor, out: torch.Tensor | None, **words: Any) -> Work:
    """Describe an operation on a tensor that `contiguous` returned; for the words see `describe_work`."""
    device = "cpu" if tensor.is_cpu else tensor.device.type
    dtype, shape = dtype_name(tensor), tensor.shape
    return describe_work(kind, tensor, out, dtype=dtype, shape=shape, device=device, **words)


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's values, apart from autograd, in contiguous memory on the same device.

    That is the tensor's own memory where it can be, else a copy. `ValueError` for tensors that have none,
    and where only another framework was told to `init`.
    """
    if not isinstance(PROCESS.get().kernels, TorchKernels):
        raise ValueError("Another framework has joined the ranks: call ringleader.torch.init() as well.")
    if tensor.layout is not _STRIDED:
        raise ValueError(f"a tensor of layout {tensor.layout} is not strided; pass its dense form")
    if not tensor.is_cpu and not tensor.is_cuda:
        raise ValueError(f"tensors on {tensor.device.type} devices are not supported; move them to the CPU")
    data = tensor.detach() if tensor.requires_grad else tensor
    if not data.is_contiguous():
        data = data.contiguous()
    return data.resolve_neg() if data.is_neg() else data
