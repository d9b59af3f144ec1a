"""Our engine, as scripts use it: ``ringleader.torch``, or NumPy's arrays where PyTorch is not installed."""

from __future__ import annotations

from typing import Any

import numpy

from ringleader.bench.collective_implementations.implementation import Call, NotOfferedError
from ringleader.bench.collective_implementations.memory import Memory, bytes_of_tensor
from ringleader.bench.collective_plan import REDUCING
from ringleader.bench.collective_values import Array, Case
from ringleader.engine.operations import ReduceOp

REDUCTIONS = {
    "sum": ReduceOp.SUM,
    "prod": ReduceOp.PRODUCT,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
    "avg": ReduceOp.AVERAGE,
}
SENDRECV_NOTE = "sendrecv is an alltoall in which all rows go to the next rank"


def refuse(case: Case, in_place: bool) -> None:
    """Raise NotOfferedError for what Horovod's interface does not have."""
    if in_place and case.operation not in ("allreduce", "broadcast"):
        raise NotOfferedError(f"{case.operation} is not offered in place")
    if case.operation == "reducescatter" and case.redop not in ("sum", "avg"):
        raise NotOfferedError(f"reducescatter reduces by sum and avg, not by {case.redop}")


def splits_of(case: Case) -> list[int]:
    """Return the rows that go to each rank where all go to the next one."""
    following = (case.rank + 1) % case.ranks
    return [case.count if rank == following else 0 for rank in range(case.ranks)]


class TorchEngine:
    """``ringleader.torch``."""

    def __init__(self) -> None:
        """Join the other ranks."""
        import ringleader.torch as hvd

        hvd.init()
        self._hvd: Any = hvd

    def prepare(self, case: Case, send: Memory, receive: Memory, *, in_place: bool) -> Call:
        """See ``Implementation``."""
        refuse(case, in_place)
        hvd = self._hvd
        source = receive if in_place else send
        tensor = source.tensor(case.dtype, 0, case.sent_bytes)
        op = REDUCTIONS[case.redop] if case.operation in REDUCING else None
        calls = {
            ("allreduce", False): lambda: hvd.allreduce(tensor, op=op),
            ("allreduce", True): lambda: hvd.allreduce_(tensor, op=op),
            ("allgather", False): lambda: hvd.allgather(tensor),
            ("reducescatter", False): lambda: hvd.reducescatter(tensor, op=op),
            ("broadcast", False): lambda: hvd.broadcast(tensor, case.root),
            ("broadcast", True): lambda: hvd.broadcast_(tensor, case.root),
            ("alltoall", False): lambda: hvd.alltoall(tensor),
        }
        if case.operation == "sendrecv":
            splits = splits_of(case)
            return Call(
                run=lambda: hvd.alltoall(tensor, splits),
                result=lambda pair: bytes_of_tensor(pair[0]),
                note=SENDRECV_NOTE,
            )
        return Call(run=calls[case.operation, in_place], result=bytes_of_tensor)

    def finish(self) -> None:
        """Wait for the GPU, where one has worked."""
        import torch

        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()

    def close(self) -> None:
        """Part from the other ranks."""
        self._hvd.shutdown()


class NumpyEngine:
    """``ringleader.adapters.array_operations``."""

    def __init__(self) -> None:
        """Join the other ranks."""
        from ringleader.adapters import basics

        basics.init()
        self._basics = basics

    def prepare(self, case: Case, send: Memory, receive: Memory, *, in_place: bool) -> Call:
        """See ``Implementation``."""
        from ringleader.adapters import array_operations as operations
        from ringleader.adapters.process_sets import global_process_set as everyone

        refuse(case, in_place)
        source = receive if in_place else send
        array = self._typed(source.array(case.dtype, 0, case.sent_bytes), case.dtype)
        arguments: tuple[Any, ...] = ()
        if case.operation in REDUCING:
            arguments = (REDUCTIONS[case.redop],)
        elif case.operation == "broadcast":
            arguments = (case.root,)
        elif case.operation in ("alltoall", "sendrecv"):
            arguments = (splits_of(case) if case.operation == "sendrecv" else None,)
        kinds = {
            "allreduce": operations.ALLREDUCE_IN_PLACE if in_place else operations.ALLREDUCE,
            "allgather": operations.ALLGATHER,
            "reducescatter": operations.REDUCESCATTER,
            "broadcast": operations.BROADCAST_IN_PLACE if in_place else operations.BROADCAST,
        }
        kind = kinds.get(case.operation, operations.ALLTOALL)

        def result(got: Any) -> Array:
            rows = got[0] if isinstance(got, tuple) else got
            found: Array = rows.reshape(-1).view(numpy.uint8)
            return found

        return Call(
            run=lambda: kind.run(array, None, everyone, *arguments),
            result=result,
            note=SENDRECV_NOTE if case.operation == "sendrecv" else "",
        )

    @staticmethod
    def _typed(array: Array, dtype: str) -> Array:
        if dtype != "bfloat16":
            return array
        try:
            import ml_dtypes
        except ImportError:
            raise NotOfferedError("NumPy has bfloat16 with the package ml_dtypes only") from None
        found: Array = array.view(ml_dtypes.bfloat16)
        return found

    def finish(self) -> None:
        """Do nothing: calls return when they are done."""

    def close(self) -> None:
        """Part from the other ranks."""
        self._basics.shutdown()
