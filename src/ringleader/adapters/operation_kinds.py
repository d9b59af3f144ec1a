"""Every kind of operation once: what it asks of its arguments, how it is described, and its gradient's rule.

A framework brings a `TensorKind`, how its tensors are described, and gets an `Operation` of each kind
(`OperationKinds`); `submit_operation` hands these to the engine, `array_operations` has NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from ringleader.adapters.basics import rank
from ringleader.adapters.process_sets import ProcessSet, group_of
from ringleader.adapters.reductions import Adasum, Average, Sum
from ringleader.adapters.submit_operation import Operation, signature_for
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.operations import ReduceOp, Work
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.engine.rank_group import Group
from ringleader.engine.transports.adasum import power_of_two

# Checks, before other ranks hear of an operation: the group, shape and type of a tensor, what is asked for.


def check_allreduce(group: Group, _shape: Sequence[int], dtype: str, op: ReduceOp, *_factors: float) -> None:
    """Refuse a reduction that has no meaning for an element type or a group of ranks."""
    if op is Average:
        if dtype == "bool":
            raise ValueError("bool tensors have no average; use op=hvd.Max for any, op=hvd.Min for all")
    elif op is Adasum:
        if group is not PROCESS.get().group:
            raise NotImplementedError("Adasum does not support non-global process sets.")
        if not power_of_two(group.ranks.size):
            raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported.")
        if "float" not in dtype:
            raise ValueError(f"Adasum is for floating-point tensors, and this one is {dtype}")


def check_allgather(_group: Group, shape: Sequence[int], _dtype: str, *_note: str) -> None:
    """Refuse a tensor without rows."""
    _check_rows(shape, "gathered")


def check_broadcast(group: Group, _shape: Sequence[int], _dtype: str, root_rank: int) -> None:
    """Refuse a root that is not in the group."""
    group.root(root_rank)


def check_alltoall(
    group: Group, shape: Sequence[int], _dtype: str, splits: Sequence[int] | None
) -> tuple[int, ...] | None:
    """Return the rows for each rank, None for equal parts; `ValueError` where they do not fit the tensor."""
    _check_rows(shape, "split")
    rows, size = shape[0], group.ranks.size
    if splits is None:
        if rows % size:
            raise ValueError(f"without splits the first dimension ({rows}) has to be a multiple of {size}")
        return None
    counts = tuple(splits)
    if len(counts) != size:
        raise ValueError(f"splits has {len(counts)} entries for {size} ranks")
    if min(counts) < 0 or sum(counts) > rows:
        raise ValueError(f"splits {list(counts)} do not fit the {rows} rows of the tensor")
    return counts


def check_reducescatter(
    group: Group, shape: Sequence[int], dtype: str, op: ReduceOp, *_factors: float
) -> ReduceOp:
    """Return the reduction, which may be a mean or a sum; refuse a tensor without rows."""
    if op not in (Average, Sum):
        raise HorovodInternalError(f"reducescatter is for Average and Sum, not {ReduceOp(op).name.title()}")
    op = ReduceOp(op)
    check_allreduce(group, shape, dtype, op)
    _check_rows(shape, "scattered")
    return op


def _check_rows(shape: Sequence[int], verb: str) -> None:
    if not len(shape):
        raise ValueError(f"a tensor without dimensions cannot be {verb}; use a reshape to (1,)")


# gradients: where other rules would do as well, they are Horovod's


class GradientCalls(Protocol):
    """A call whose gradient is wanted: the same ranks do operations of the same grouping on the gradients."""

    @property
    def process_set(self) -> ProcessSet:
        """Return the ranks."""

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Return what the operation took after the process set."""

    def reduce(self, grads: Sequence[Any], arguments: tuple[Any, ...]) -> Sequence[Any]:
        """Return an allreduce of gradients; the arguments are those of one."""

    def gather(self, grads: Sequence[Any]) -> Sequence[Any]:
        """Return an allgather of gradients."""

    def own_rows(self, whole: Any, counts: Any, rank: int) -> Any:
        """Return a rank's rows of a tensor that has ``counts`` rows of each rank."""

    def zeros(self, likes: Sequence[Any]) -> Sequence[Any]:
        """Return zeros like some tensors, which have been computed."""


Gradient = Callable[[GradientCalls, Sequence[Any], Sequence[Any]], Sequence[Any]]
"""The call, gradients of its outputs, for each the rows that came from each rank → those of its inputs."""
MEAN = (Average, 1.0, 1.0)


def same_reduction(calls: GradientCalls, grads: Sequence[Any], _rows: Sequence[Any]) -> Sequence[Any]:
    """Of an allreduce: the same allreduce."""
    return calls.reduce(grads, calls.arguments)


def own_rows_of_means(calls: GradientCalls, grads: Sequence[Any], rows: Sequence[Any]) -> Sequence[Any]:
    """Of an allgather: the means over the ranks, cut to this rank's rows."""
    means = calls.reduce(grads, MEAN)
    mine = group_of(calls.process_set, "Allgather").ranks.rank
    return [calls.own_rows(mean, counts, mine) for mean, counts in zip(means, rows, strict=True)]


def means_on_root(calls: GradientCalls, grads: Sequence[Any], _rows: Sequence[Any]) -> Sequence[Any]:
    """Of a broadcast: the means over the ranks on the root, and zeros elsewhere."""
    means = calls.reduce(grads, MEAN)
    return means if rank() == calls.arguments[0] else calls.zeros(means)


def gathered(calls: GradientCalls, grads: Sequence[Any], _rows: Sequence[Any]) -> Sequence[Any]:
    """Of a reducescatter: all ranks' gradients. A sum has the number of ranks times those of an average."""
    op, prescale, postscale = calls.arguments
    size = group_of(calls.process_set, "Reducescatter").ranks.size if op == Sum else 1
    return calls.gather([grad * (size * prescale * postscale) for grad in grads])


# descriptions


@dataclass(frozen=True, kw_only=True)
class TensorKind:
    """How a framework's tensors are described to the engine."""

    values: Callable[[Any, bool], Any]
    """A tensor, and whether the result goes into it → its contiguous values, in place if possible."""
    dtype: Callable[[Any], str]
    """Values → the neutral name of their type; `ValueError` where it cannot be carried."""
    like: Callable[[Any], Any]
    """Values → new memory for a result of their shape."""
    device: Callable[[Any], str]
    """Values → the kind of device that they are on."""
    array: Callable[[Any], Any] | None
    """Values, or memory for a result → what the engine takes; None: that is the same."""
    splits: Callable[[Any], Sequence[int] | None]
    """The splits that a script gives → numbers."""
    result: Callable[[Work, Any], Any] | None
    """A finished work and the script's tensor → its result; None: the new tensor that the work made."""
    in_place: Callable[[Work, Any], Any]
    """The same where the result goes into the script's tensor."""
    received: Callable[[Work, Any], Any]
    """The same where the script also gets how many rows came from each rank."""


class OperationKinds:
    """The operations on the tensors of one kind."""

    def __init__(self, tensors: TensorKind) -> None:
        """Take how they are described."""
        self._tensors = tensors
        result, in_place, received = tensors.result, tensors.in_place, tensors.received
        reduce, broadcast = self._allreduce, self._broadcast
        gather: dict[str, Any] = {"gradient": own_rows_of_means, "check": check_allgather}
        self.allreduce = Operation(
            "Allreduce", partial(reduce, False), result=result, gradient=same_reduction, check=check_allreduce
        )
        """Arguments: reduction, factor before it, factor after it."""
        self.allreduce_in_place = Operation("Allreduce", partial(reduce, True), result=in_place)
        """The same, with the result in the tensor."""
        self.allgather = Operation("Allgather", self._allgather, result=result, **gather)
        """Argument, if any: a note that must be equal on all ranks."""
        self.allgather_rows = Operation("Allgather", self._allgather, result=received, **gather)
        """The same; the result is the rows, and how many came from each rank."""
        sent: dict[str, Any] = {"gradient": means_on_root, "check": check_broadcast}
        self.broadcast = Operation("Broadcast", partial(broadcast, False), result=result, **sent)
        """Argument: the root among all ranks, whatever the set."""
        self.broadcast_in_place = Operation("Broadcast", partial(broadcast, True), result=in_place)
        """The same, with the result in the tensor."""
        self.alltoall = Operation("Alltoall", self._alltoall, result=received, check=check_alltoall)
        """Argument: the splits, None for equal parts. The result is that of `allgather_rows`."""
        self.reducescatter = Operation(
            "Reducescatter", self._reducescatter, result=result, gradient=gathered, check=check_reducescatter
        )
        """Arguments: reduction (a mean or a sum), factor before it, factor after it."""

    def _allreduce(
        self,
        in_place: bool,
        group: Group,
        tensor: Any,
        name: str | None,
        serial: int,
        op: ReduceOp,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Work:
        own = self._tensors
        data = own.values(tensor, in_place)
        dtype = own.dtype(data)
        check_allreduce(group, data.shape, dtype, op)
        # Not by `_work`: what the most frequent operation costs besides the exchange counts.
        device, out = own.device(data), data if in_place else own.like(data)
        signature, digest = signature_for(
            "allreduce", dtype, data.shape, device, op, 0, prescale, postscale, ""
        )
        if own.array is not None:
            mine = own.array(data)
            data, out = mine, mine if in_place else own.array(out)
        return Work(signature, digest, name=name, serial=serial, array=data, out=out)

    def _allgather(self, group: Group, tensor: Any, name: str | None, serial: int, note: str = "") -> Work:
        _check_rows(tensor.shape, "gathered")
        return self._work("allgather", tensor, name, serial, note=note)

    def _broadcast(
        self, in_place: bool, group: Group, tensor: Any, name: str | None, serial: int, root_rank: int
    ) -> Work:
        return self._work("broadcast", tensor, name, serial, in_place=in_place, root=group.root(root_rank))

    def _alltoall(self, group: Group, tensor: Any, name: str | None, serial: int, splits: Any) -> Work:
        counts = check_alltoall(group, tensor.shape, "", self._tensors.splits(splits))
        return self._work("alltoall", tensor, name, serial, splits=counts)

    def _reducescatter(
        self,
        group: Group,
        tensor: Any,
        name: str | None,
        serial: int,
        op: ReduceOp,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> Work:
        op = check_reducescatter(group, tensor.shape, self._tensors.dtype(tensor), op)
        words: dict[str, Any] = {"op": op, "prescale": prescale, "postscale": postscale}
        return self._work("reducescatter", tensor, name, serial, **words)

    def _work(
        self, kind: str, tensor: Any, name: str | None, serial: int, *, in_place: bool = False, **words: Any
    ) -> Work:
        data = self._tensors.values(tensor, in_place)
        out = data if in_place else self._tensors.like(data) if kind == "broadcast" else None
        return self.describe(kind, data, out, name=name, serial=serial, **words)

    def describe(
        self,
        kind: str,
        data: Any,
        out: Any,
        *,
        name: str | None,
        serial: int,
        op: ReduceOp = Sum,
        root: int = 0,
        prescale: float = 1.0,
        postscale: float = 1.0,
        note: str = "",
        splits: tuple[int, ...] | None = None,
    ) -> Work:
        """Describe an operation on contiguous values, and memory for the result if there is any; `Signature`
        has the words."""
        own = self._tensors
        shape = data.shape[1:] if kind in ("allgather", "alltoall") else data.shape
        signature, digest = signature_for(
            kind, own.dtype(data), shape, own.device(data), op, root, prescale, postscale, note
        )
        if own.array is not None:
            mine = own.array(data)
            data, out = mine, mine if out is data else out if out is None else own.array(out)
        return Work(signature, digest, name=name, serial=serial, array=data, out=out, splits=splits)
