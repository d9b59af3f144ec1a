"""Who does the operations of a collective test: our engine, plain MPI, torch.distributed with Gloo or NCCL.

Each is asked for an operation on given memory (`collective_memory`), ready to be called, or says why it has
no such operation. Frameworks are imported by who needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import numpy

from ringleader.bench.collective_memory import Memory, bytes_of_tensor
from ringleader.bench.collective_plan import DTYPES, REDUCING
from ringleader.bench.collective_values import Array, Case
from ringleader.engine.operations import ReduceOp


class NotOfferedError(Exception):
    """An implementation has no such operation; its words say which."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One operation on its memory."""

    run: Callable[[], Any]
    """Does it once. An implementation whose calls return early completes them in ``finish``."""
    result: Callable[[Any], Array]
    """Returns the bytes that this rank got, from what ``run`` returned."""
    note: str = ""
    """What it is made of, where the implementation has no such operation."""


MEAN_NOTE = "avg is a sum that each rank divides"
SENDRECV_NOTE = "sendrecv is an alltoall in which all rows go to the next rank"


class Implementation(Protocol):
    """One of them, in a rank."""

    def prepare(self, case: Case, send: Memory, receive: Memory, *, in_place: bool) -> Call:
        """Return the operation; in place, all of it is in ``receive``, as in nccl-tests.

        Raises NotOfferedError.
        """

    def finish(self) -> None:
        """Wait until everything that was called is done."""

    def close(self) -> None:
        """Part from the other ranks."""


def _neighbors(case: Case) -> tuple[int, int]:
    """Return the ranks after and before this one, in a ring."""
    return (case.rank + 1) % case.ranks, (case.rank - 1) % case.ranks


# --- our engine, as scripts use it ------------------------------------------------------------------------

REDUCTIONS = {
    "sum": ReduceOp.SUM,
    "prod": ReduceOp.PRODUCT,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
    "avg": ReduceOp.AVERAGE,
}


def _splits(case: Case) -> list[int] | None:
    """Return the rows that go to each rank; ``None``: equal parts."""
    following, _ = _neighbors(case)
    rows = [case.count if rank == following else 0 for rank in range(case.ranks)]
    return rows if case.operation == "sendrecv" else None


def _offered(case: Case, in_place: bool) -> tuple[str, dict[str, Any]]:
    """Return Horovod's name of an operation and its arguments; NotOfferedError where it has none."""
    if in_place and case.operation not in ("allreduce", "broadcast"):
        raise NotOfferedError(f"{case.operation} is not offered in place")
    if case.operation == "reducescatter" and case.redop not in ("sum", "avg"):
        raise NotOfferedError(f"reducescatter reduces by sum and avg, not by {case.redop}")
    if case.operation in REDUCING:
        return case.operation, {"op": REDUCTIONS[case.redop]}
    if case.operation == "broadcast":
        return case.operation, {"root_rank": case.root}
    if case.operation in ("alltoall", "sendrecv"):
        return "alltoall", {"splits": _splits(case)}
    return case.operation, {}


class TorchEngine:
    """``ringleader.torch``."""

    def __init__(self) -> None:
        """Join the other ranks."""
        import ringleader.torch as hvd

        hvd.init()
        self._hvd: Any = hvd

    def prepare(self, case: Case, send: Memory, receive: Memory, *, in_place: bool) -> Call:
        """See `Implementation`."""
        name, arguments = _offered(case, in_place)
        tensor = (receive if in_place else send).tensor(case.dtype, 0, case.sent_bytes)
        function = getattr(self._hvd, f"{name}_" if in_place else name)
        return Call(
            run=lambda: function(tensor, **arguments),
            result=lambda got: bytes_of_tensor(got[0] if isinstance(got, tuple) else got),
            note=SENDRECV_NOTE if case.operation == "sendrecv" else "",
        )

    def finish(self) -> None:
        """Wait for the GPU, where one has worked."""
        import torch

        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()

    def close(self) -> None:
        """Part from the other ranks."""
        self._hvd.shutdown()


class NumpyEngine:
    """``ringleader.adapters.array_operations``, where PyTorch is not installed."""

    def __init__(self) -> None:
        """Join the other ranks."""
        from ringleader.adapters import array_operations, basics

        basics.init()
        self._basics, self._kinds = basics, array_operations.OPERATIONS

    def prepare(self, case: Case, send: Memory, receive: Memory, *, in_place: bool) -> Call:
        """See `Implementation`."""
        from ringleader.adapters.process_sets import global_process_set as everyone

        name, arguments = _offered(case, in_place)
        array = (receive if in_place else send).array(case.dtype, 0, case.sent_bytes)
        if case.dtype == "bfloat16":
            try:
                import ml_dtypes
            except ImportError:
                raise NotOfferedError("NumPy has bfloat16 with the package ml_dtypes only") from None
            array = array.view(ml_dtypes.bfloat16)
        kind = getattr(self._kinds, f"{name}_in_place" if in_place else name)

        def result(got: Any) -> Array:
            rows = got[0] if isinstance(got, tuple) else got
            found: Array = rows.reshape(-1).view(numpy.uint8)
            return found

        return Call(
            run=lambda: kind.run(array, None, everyone, *arguments.values()),
            result=result,
            note=SENDRECV_NOTE if case.operation == "sendrecv" else "",
        )

    def finish(self) -> None:
        """Do nothing: calls return when they are done."""

    def close(self) -> None:
        """Part from the other ranks."""
        self._basics.shutdown()


# --- the MPI itself, as mpi4py calls it with buffers ------------------------------------------------------


class PlainMpi:
    """A communicator of all ranks."""

    def __init__(self) -> None:
        """Copy the world, so that nothing of the engine's meets our messages."""
        from mpi4py import MPI

        self._mpi: Any = MPI
        self._comm: Any = MPI.COMM_WORLD.Dup()

    def prepare(self, case: Case, send: Memory, receive: Memory, *, in_place: bool) -> Call:
        """See `Implementation`."""
        if not (send.is_host and receive.is_host):
            raise NotOfferedError("memory of GPUs needs an MPI that is built for it: not measured")
        prepare = self._reduction if case.operation in REDUCING else self._move
        return prepare(case, send, receive, in_place)

    def _reduction(self, case: Case, send: Memory, receive: Memory, in_place: bool) -> Call:
        if case.dtype in ("float16", "bfloat16"):
            raise NotOfferedError(f"MPI has no {case.dtype} to reduce")
        ops = {"prod": self._mpi.PROD, "min": self._mpi.MIN, "max": self._mpi.MAX}
        op = ops.get(case.redop, self._mpi.SUM)
        into = receive.array(case.dtype, 0, case.sent_bytes if in_place else case.received_bytes)
        source = self._mpi.IN_PLACE if in_place else send.array(case.dtype, 0, case.sent_bytes)
        scattered = case.operation == "reducescatter"
        reduce = self._comm.Reduce_scatter_block if scattered else self._comm.Allreduce
        out = into[: case.count]

        def mean() -> None:
            reduce(source, into, op)
            divide = numpy.divide if case.dtype.startswith("float") else numpy.floor_divide
            divide(out, case.ranks, out=out)

        if case.redop == "avg":
            return _into_array(mean, out, MEAN_NOTE)
        return _into_array(lambda: reduce(source, into, op), out)

    def _move(self, case: Case, send: Memory, receive: Memory, in_place: bool) -> Call:
        # As unsigned integers of the same size: a count of bytes would be too large for MPI sooner.
        word = f"uint{8 * DTYPES[case.dtype][1]}"
        comm, mine = self._comm, send.array(word, 0, case.sent_bytes)
        into = receive.array(word, 0, case.received_bytes)
        following, before = _neighbors(case)
        if case.operation == "broadcast" and not in_place:
            raise NotOfferedError("MPI broadcasts in place only")
        calls: dict[str, Callable[[], object]] = {
            "broadcast": lambda: comm.Bcast(into, root=case.root),
            "allgather": lambda: comm.Allgather(self._mpi.IN_PLACE if in_place else mine, into),
            "alltoall": lambda: comm.Alltoall(mine, into),
            "sendrecv": lambda: comm.Sendrecv(mine, following, recvbuf=into, source=before),
        }
        return _into_array(calls[case.operation], into)

    def finish(self) -> None:
        """Do nothing: calls return when they are done."""

    def close(self) -> None:
        """Give the communicator back."""
        self._comm.Free()


def _into_array(run: Callable[[], object], out: Array, note: str = "") -> Call:
    """Return the call of an operation that leaves its result in ``out``."""
    return Call(run=run, result=lambda _nothing: out.view(numpy.uint8), note=note)


# --- Gloo and NCCL, as torch.distributed offers them ------------------------------------------------------


class TorchDistributed:
    """A group of all ranks with one backend."""

    def __init__(self, backend: str, *, seconds: float) -> None:
        """``backend``: ``gloo`` or ``nccl``; ``seconds``: until an operation counts as failed.

        The ranks connect where the launcher's MASTER_ADDR and MASTER_PORT say, as in any script.
        """
        import torch.distributed

        self._backend = backend
        self._dist: Any = torch.distributed
        timeout = timedelta(seconds=seconds)
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo", timeout=timeout)
        self._group: Any = torch.distributed.new_group(backend=backend, timeout=timeout)

    def prepare(self, case: Case, send: Memory, receive: Memory, *, in_place: bool) -> Call:
        """See `Implementation`."""
        prepare = self._reduction if case.operation in REDUCING else self._move
        return prepare(case, send, receive, in_place)

    def _reduction(self, case: Case, send: Memory, receive: Memory, in_place: bool) -> Call:
        dist, group = self._dist, self._group
        kinds = {"prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
        op = kinds.get(case.redop, dist.ReduceOp.SUM)
        divides = case.redop == "avg" and self._backend == "gloo"
        if case.redop == "avg" and not divides:
            op = dist.ReduceOp.AVG
        divisor = case.ranks if divides else 0
        if case.operation == "allreduce":
            if not in_place:
                raise NotOfferedError("torch.distributed reduces in place only")
            out = receive.tensor(case.dtype, 0, case.part_bytes)
            return _into_tensor(lambda: dist.all_reduce(out, op, group=group), out, divisor)
        # PyTorch 2.13 has given these two another name.
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        source = (receive if in_place else send).tensor(case.dtype, 0, case.sent_bytes)
        start = case.rank * case.part_bytes if in_place else 0
        out = receive.tensor(case.dtype, start, case.part_bytes)
        return _into_tensor(lambda: scatter(out, source, op, group=group), out, divisor)

    def _move(self, case: Case, send: Memory, receive: Memory, in_place: bool) -> Call:
        dist, group = self._dist, self._group
        mine = send.tensor(case.dtype, 0, case.sent_bytes)
        out = receive.tensor(case.dtype, 0, case.received_bytes)
        if case.operation == "broadcast":
            if not in_place:
                raise NotOfferedError("torch.distributed broadcasts in place only")
            return _into_tensor(lambda: dist.broadcast(out, case.root, group=group), out)
        if case.operation == "allgather":
            part = receive.tensor(case.dtype, case.rank * case.part_bytes, case.part_bytes)
            source = part if in_place else mine
            gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
            return _into_tensor(lambda: gather(out, source, group=group), out)
        if case.operation == "alltoall":
            return _into_tensor(lambda: dist.all_to_all_single(out, mine, group=group), out)
        following, before = _neighbors(case)

        def exchange() -> None:
            both = [
                dist.P2POp(dist.isend, mine, following, group),
                dist.P2POp(dist.irecv, out, before, group),
            ]
            for work in dist.batch_isend_irecv(both):
                work.wait()

        return _into_tensor(exchange, out)

    def finish(self) -> None:
        """Wait for the GPU, where NCCL's calls return early."""
        if self._backend == "nccl":
            import torch

            torch.cuda.synchronize()

    def close(self) -> None:
        """Leave the group, and the world with the last one."""
        if self._dist.is_initialized():
            self._dist.destroy_process_group()


def _into_tensor(run: Callable[[], object], out: Any, divisor: int = 0) -> Call:
    """Return the call of an operation that leaves its result in ``out``, divided where there is a divisor."""

    def mean() -> None:
        run()
        out.div_(divisor, rounding_mode=None if out.is_floating_point() else "trunc")

    return Call(
        run=mean if divisor else run,
        result=lambda _nothing: bytes_of_tensor(out),
        note=MEAN_NOTE if divisor else "",
    )


def engine_of(framework: str, *, host_memory: bool) -> Implementation:
    """Return our engine with PyTorch's tensors, or with NumPy's arrays. Raises ImportError."""
    if framework == "numpy":
        return NumpyEngine()
    try:
        import torch  # noqa: F401
    except ImportError:
        if framework == "torch" or not host_memory:
            raise
        return NumpyEngine()
    return TorchEngine()


def others_of(names: Sequence[str], *, seconds: float) -> dict[str, Callable[[], Implementation]]:
    """Return what makes each other implementation; ``seconds``: until an operation counts as failed."""
    makers: dict[str, Callable[[], Implementation]] = {
        "mpi": PlainMpi,
        "gloo": lambda: TorchDistributed("gloo", seconds=seconds),
        "nccl": lambda: TorchDistributed("nccl", seconds=seconds),
    }
    return {name: makers[name] for name in names}
