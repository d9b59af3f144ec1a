"""Operations on several tensors at once. Signatures and their order are Horovod's.

A group has one handle and one name; its members are known as ``<name>_<i>of<n>``. Ranks see all of them or
none. Types and shapes may differ within a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.operations import ReduceOp, Work
from ringleader.torch.compression.compressor import Compression, Compressor
from ringleader.torch.ops.allgather import gathering, own_rows
from ringleader.torch.ops.allreduce import Average, handle_average_backwards_compatibility, reduction
from ringleader.torch.ops.alltoall import scaled_gradient, scattering
from ringleader.torch.ops.handles import begin, next_serial, synchronize
from ringleader.torch.ops.submit import written_back
from ringleader.torch.process_sets import ProcessSet, global_process_set, group_of

Tensors = Sequence[torch.Tensor]
Results = tuple[torch.Tensor, ...]


def _begin(
    operation: str,
    tensors: Tensors,
    name: str | None,
    process_set: ProcessSet,
    describe: Callable[[torch.Tensor, str, int], tuple[Engine, Work]],
    result: Callable[[list[Work]], Any],
) -> int:
    """Describe each member by its name and the group's number, begin all, and return the handle."""
    serial = next_serial(process_set.process_set_id)
    engine = group_of(process_set, operation).engine
    base = f"noname.{serial}" if name is None else name
    works = [
        describe(tensor, f"{base}_{at}of{len(tensors)}", serial)[1] for at, tensor in enumerate(tensors, 1)
    ]
    return begin(engine, works, lambda: result(works))


def _outputs(works: list[Work]) -> Results:
    return tuple(work.out for work in works)


def _wants_gradient(tensors: Tensors) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _spread(
    grads: Sequence[torch.Tensor | None], begin_all: Callable[[list[torch.Tensor]], int]
) -> list[torch.Tensor | None]:
    """Exchange those gradients that there are; the others stay None."""
    there = [grad for grad in grads if grad is not None and grad.is_floating_point()]
    done = iter(synchronize(begin_all(there)))
    return [next(done) if grad is not None and grad.is_floating_point() else None for grad in grads]


# allreduce


def _begin_reductions(
    tensors: Tensors,
    op: ReduceOp,
    name: str | None,
    scales: tuple[float, float],
    process_set: ProcessSet,
    *,
    in_place: bool,
) -> int:
    tensors = tuple(tensors)

    def describe(tensor: torch.Tensor, member: str, serial: int) -> tuple[Engine, Work]:
        return reduction(
            tensor,
            in_place=in_place,
            name=member,
            serial=serial,
            op=op,
            scales=scales,
            process_set=process_set,
        )

    def result(works: list[Work]) -> Results:
        if not in_place:
            return _outputs(works)
        return tuple(written_back(work.out, tensor) for work, tensor in zip(works, tensors, strict=True))

    return _begin("Allreduce", tensors, name, process_set, describe, result)


class HorovodGroupedAllreduce(torch.autograd.Function):
    """Allreduces whose gradients are the same allreduces of the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        op: ReduceOp,
        name: str | None,
        scales: tuple[float, float],
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> Results:
        """Reduce."""
        ctx.facts = (op, scales, process_set)
        handle = _begin_reductions(tensors, op, name, scales, process_set, in_place=False)
        results: Results = synchronize(handle)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Reduce the gradients."""
        op, scales, process_set = ctx.facts
        reduced = _spread(
            grads, lambda there: _begin_reductions(there, op, None, scales, process_set, in_place=False)
        )
        return (None, None, None, None, *reduced)


def grouped_allreduce(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Return the reductions of several tensors over the ranks of a process set; differentiable.

    See `ringleader.torch.ops.allreduce.allreduce`.
    """
    chosen = handle_average_backwards_compatibility(op, average)
    scales = (prescale_factor, postscale_factor)
    pairs = [compression.compress(tensor) for tensor in tensors]
    small = [one for one, _context in pairs]
    if _wants_gradient(small):
        results = HorovodGroupedAllreduce.apply(chosen, name, scales, process_set, *small)  # type: ignore[no-untyped-call]
    else:
        results = synchronize(_begin_reductions(small, chosen, name, scales, process_set, in_place=False))
    return [
        compression.decompress(result, context)
        for result, (_small, context) in zip(results, pairs, strict=True)
    ]


def grouped_allreduce_async(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin allreduces of several tensors; `synchronize` of the handle returns a tuple."""
    chosen = handle_average_backwards_compatibility(op, average)
    scales = (prescale_factor, postscale_factor)
    return _begin_reductions(tensors, chosen, name, scales, process_set, in_place=False)


def grouped_allreduce_(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduce several tensors in place, and return them."""
    chosen = handle_average_backwards_compatibility(op, average)
    scales = (prescale_factor, postscale_factor)
    return list(synchronize(_begin_reductions(tensors, chosen, name, scales, process_set, in_place=True)))


def grouped_allreduce_async_(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Begin allreduces of several tensors in place; `synchronize` of the handle returns a tuple of them."""
    chosen = handle_average_backwards_compatibility(op, average)
    scales = (prescale_factor, postscale_factor)
    return _begin_reductions(tensors, chosen, name, scales, process_set, in_place=True)


# allgather


def _begin_gathers(
    tensors: Tensors,
    name: str | None,
    process_set: ProcessSet,
    result: Callable[[list[Work]], Any] = _outputs,
) -> int:
    def describe(tensor: torch.Tensor, member: str, serial: int) -> tuple[Engine, Work]:
        return gathering(tensor, member, serial, process_set)

    return _begin("Allgather", tuple(tensors), name, process_set, describe, result)


class HorovodGroupedAllgather(torch.autograd.Function):
    """Gathers whose gradients are the means over ranks, cut to this rank's rows."""

    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor) -> Results:
        """Gather."""
        handle = _begin_gathers(tensors, name, process_set, lambda works: works)
        works: list[Work] = synchronize(handle)
        ctx.facts = ([work.received for work in works], process_set)
        return _outputs(works)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Average the gradients."""
        rows, process_set = ctx.facts
        means = _spread(
            grads,
            lambda there: _begin_reductions(there, Average, None, (1.0, 1.0), process_set, in_place=False),
        )
        own = [
            None if mean is None else own_rows(mean, counts, process_set)
            for mean, counts in zip(means, rows, strict=True)
        ]
        return (None, None, *own)


def grouped_allgather(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Return each tensor joined from those of all ranks of a process set; differentiable.

    See `ringleader.torch.ops.allgather.allgather`.
    """
    if _wants_gradient(tensors):
        return list(HorovodGroupedAllgather.apply(name, process_set, *tensors))  # type: ignore[no-untyped-call]
    return list(synchronize(_begin_gathers(tensors, name, process_set)))


def grouped_allgather_async(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Begin allgathers of several tensors; `synchronize` of the handle returns a tuple."""
    return _begin_gathers(tensors, name, process_set)


# reducescatter


def _begin_scatters(
    tensors: Tensors,
    name: str | None,
    op: ReduceOp,
    process_set: ProcessSet,
    scales: tuple[float, float],
) -> int:
    def describe(tensor: torch.Tensor, member: str, serial: int) -> tuple[Engine, Work]:
        return scattering(tensor, member, serial, op, process_set, scales)

    return _begin("Reducescatter", tuple(tensors), name, process_set, describe, _outputs)


class HorovodGroupedReducescatter(torch.autograd.Function):
    """Reducescatters whose gradients are gathered."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: ReduceOp,
        process_set: ProcessSet,
        scales: tuple[float, float],
        *tensors: torch.Tensor,
    ) -> Results:
        """Reduce and scatter."""
        ctx.facts = (op, process_set, scales)
        results: Results = synchronize(_begin_scatters(tensors, name, op, process_set, scales))
        return results

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        """Gather the gradients."""
        op, process_set, scales = ctx.facts
        gathered = _spread(
            grads,
            lambda there: _begin_gathers(
                [scaled_gradient(grad, op, process_set, scales) for grad in there], None, process_set
            ),
        )
        return (None, None, None, None, *gathered)


def grouped_reducescatter(
    tensors: Tensors,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reduce several tensors and return this rank's rows of each; differentiable.

    See `ringleader.torch.ops.alltoall.reducescatter`.
    """
    scales = (prescale_factor, postscale_factor)
    pairs = [compression.compress(tensor) for tensor in tensors]
    small = [one for one, _context in pairs]
    if _wants_gradient(small):
        results = HorovodGroupedReducescatter.apply(name, op, process_set, scales, *small)  # type: ignore[no-untyped-call]
    else:
        results = synchronize(_begin_scatters(small, name, op, process_set, scales))
    return [
        compression.decompress(result, context)
        for result, (_small, context) in zip(results, pairs, strict=True)
    ]


def grouped_reducescatter_async(
    tensors: Tensors,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Begin reducescatters of several tensors; `synchronize` of the handle returns a tuple."""
    return _begin_scatters(tensors, name, op, process_set, (prescale_factor, postscale_factor))
