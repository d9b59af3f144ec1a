"""Operations on tensors of PyTorch, and as autograd knows them; `operations` has the functions of scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ringleader.adapters.operation_kinds import OperationKinds, TensorKind
from ringleader.adapters.process_sets import ProcessSet
from ringleader.adapters.submit_operation import Operation
from ringleader.engine.operations import Work
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.torch.recycled_storages import result_like
from ringleader.torch.torch_kernels import TorchKernels, dtype_name

__all__ = [
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodAlltoall",
    "HorovodBroadcast",
    "HorovodReducescatter",
]

_STRIDED = torch.strided
Splits = torch.Tensor | Sequence[int] | None


def contiguous(tensor: torch.Tensor, in_place: bool = False) -> torch.Tensor:
    """Return the tensor's values, apart from autograd, in contiguous memory on the same device.

    That is the tensor's own memory where it can be, else a copy. `ValueError` for tensors that have none,
    and where only another framework was initialized.
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


def into_tensor(work: Work, tensor: torch.Tensor) -> torch.Tensor:
    """Return the script's own tensor with the result in it, wherever the engine worked."""
    out: torch.Tensor = work.out
    if out is not tensor and out.data_ptr() != tensor.data_ptr():
        with torch.no_grad():
            tensor.copy_(out)
    return tensor


def _device(data: torch.Tensor) -> str:
    return "cpu" if data.is_cpu else data.device.type


def _counts(splits: Splits) -> Sequence[int] | None:
    """Return splits as numbers; `ValueError` where they are not 1-D and int32."""
    if splits is None:
        return None
    if not isinstance(splits, torch.Tensor):
        splits = torch.tensor(splits, dtype=torch.int32)
    if splits.dim() != 1 or splits.dtype != torch.int32:
        raise ValueError(f"splits must be 1-D and int32, not {splits.dim()}-D and {splits.dtype}")
    counts: list[int] = splits.tolist()
    return counts


def _received(work: Work, _tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows that came, and how many from each rank."""
    output: torch.Tensor = work.out
    return output, torch.tensor(work.received, dtype=torch.int32, device=output.device)


OPERATIONS = OperationKinds(
    TensorKind(
        values=contiguous,
        dtype=dtype_name,
        like=result_like,
        device=_device,
        array=None,
        splits=_counts,
        result=None,
        in_place=into_tensor,
        received=_received,
    )
)


@dataclass(frozen=True)
class _Calls:
    """See `ringleader.adapters.operation_kinds.GradientCalls`."""

    process_set: ProcessSet
    arguments: tuple[Any, ...]
    grouped: bool

    def reduce(self, grads: Sequence[Any], arguments: tuple[Any, ...]) -> Sequence[Any]:
        return self._outputs(OPERATIONS.allreduce, grads, arguments)

    def gather(self, grads: Sequence[Any]) -> Sequence[Any]:
        return self._outputs(OPERATIONS.allgather, grads, ())

    def _outputs(
        self, operation: Operation, grads: Sequence[Any], arguments: tuple[Any, ...]
    ) -> Sequence[Any]:
        works = operation.works(grads, None, self.process_set, arguments, grouped=self.grouped)
        return [work.out for work in works]

    def own_rows(self, whole: torch.Tensor, counts: Sequence[int], rank: int) -> torch.Tensor:
        return whole.narrow(0, sum(counts[:rank]), counts[rank])

    def zeros(self, likes: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [torch.zeros_like(one) for one in likes]


class DifferentiableOperation(torch.autograd.Function):
    """Operations whose gradients are operations too; a subclass says which."""

    operation: Operation

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
        ctx.facts = cls.operation, [w.received for w in works], _Calls(process_set, arguments, grouped)
        return tuple(work.out for work in works)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        """Return the gradients of all tensors that have one."""
        operation, received, calls = ctx.facts
        there = [at for at, grad in enumerate(grads) if grad is not None and grad.is_floating_point()]
        done = operation.gradient(calls, [grads[at] for at in there], [received[at] for at in there])
        found = dict(zip(there, done, strict=True))
        return (None, None, None, None, None, *(found.get(at) for at in range(len(grads))))


class HorovodAllreduce(DifferentiableOperation):
    """Allreduces whose gradients are the same allreduces of the gradients."""

    operation = OPERATIONS.allreduce


class HorovodAllgather(DifferentiableOperation):
    """Gathers whose gradients are the means over ranks, cut to this rank's rows."""

    operation = OPERATIONS.allgather


class HorovodBroadcast(DifferentiableOperation):
    """A broadcast whose gradient is the mean over ranks on the root, and zero elsewhere."""

    operation = OPERATIONS.broadcast


class HorovodReducescatter(DifferentiableOperation):
    """Reducescatters whose gradients are gathered."""

    operation = OPERATIONS.reducescatter


class HorovodAlltoall(torch.autograd.Function):
    """An alltoall whose gradient goes back the way the rows came."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Splits, name: str | None, process_set: ProcessSet
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Exchange."""
        output: torch.Tensor
        output, received = OPERATIONS.alltoall.run(tensor, name, process_set, splits)
        ctx.facts = (received.cpu(), tensor.size(0), process_set)
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Exchange the gradient; rows that went nowhere have none."""
        received, rows, process_set = ctx.facts
        grad, _counts = OPERATIONS.alltoall.run(grads[0], None, process_set, received)
        if grad.size(0) < rows:
            grad = torch.cat([grad, grad.new_zeros(rows - grad.size(0), *grad.shape[1:])])
        return grad, None, None, None
