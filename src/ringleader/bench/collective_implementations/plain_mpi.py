"""The MPI itself, as mpi4py calls it with buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy

from ringleader.bench.collective_implementations.implementation import MEAN_NOTE, Call, NotOfferedError
from ringleader.bench.collective_implementations.memory import Memory
from ringleader.bench.collective_plan import DTYPES, REDUCING
from ringleader.bench.collective_values import Array, Case


class PlainMpi:
    """A communicator of all ranks."""

    def __init__(self) -> None:
        """Copy the world, so that nothing of the engine's meets our messages."""
        from mpi4py import MPI

        self._mpi: Any = MPI
        self._comm: Any = MPI.COMM_WORLD.Dup()

    def prepare(self, case: Case, send: Memory, receive: Memory, *, in_place: bool) -> Call:
        """See ``Implementation``."""
        if not (send.is_host and receive.is_host):
            raise NotOfferedError("memory of GPUs needs an MPI that is built for it: not measured")
        if case.operation in REDUCING:
            return self._reduction(case, send, receive, in_place)
        return self._move(case, send, receive, in_place)

    def _reduction(self, case: Case, send: Memory, receive: Memory, in_place: bool) -> Call:
        if case.dtype in ("float16", "bfloat16"):
            raise NotOfferedError(f"MPI has no {case.dtype} to reduce")
        ops = {"prod": self._mpi.PROD, "min": self._mpi.MIN, "max": self._mpi.MAX}
        op = ops.get(case.redop, self._mpi.SUM)
        scattered = case.operation == "reducescatter"
        into = receive.array(case.dtype, 0, case.sent_bytes if in_place else case.received_bytes)
        source = self._mpi.IN_PLACE if in_place else send.array(case.dtype, 0, case.sent_bytes)
        reduce = self._comm.Reduce_scatter_block if scattered else self._comm.Allreduce
        out = into[: case.count]

        def run() -> None:
            reduce(source, into, op)

        def mean() -> None:
            reduce(source, into, op)
            if case.dtype.startswith("float"):
                numpy.divide(out, case.ranks, out=out)
            else:
                numpy.floor_divide(out, case.ranks, out=out)

        if case.redop == "avg":
            return replace(_into(mean, out), note=MEAN_NOTE)
        return _into(run, out)

    def _move(self, case: Case, send: Memory, receive: Memory, in_place: bool) -> Call:
        # As unsigned integers of the same size: a count of bytes would be too large for MPI sooner.
        word = f"uint{8 * DTYPES[case.dtype][1]}"
        comm, mine = self._comm, send.array(word, 0, case.sent_bytes)
        into = receive.array(word, 0, case.received_bytes)
        if case.operation == "broadcast":
            if not in_place:
                raise NotOfferedError("MPI broadcasts in place only")
            return _into(lambda: comm.Bcast(into, root=case.root), into)
        if case.operation == "allgather":
            source = self._mpi.IN_PLACE if in_place else mine
            return _into(lambda: comm.Allgather(source, into), into)
        if case.operation == "alltoall":
            return _into(lambda: comm.Alltoall(mine, into), into)
        following, before = (case.rank + 1) % case.ranks, (case.rank - 1) % case.ranks
        return _into(lambda: comm.Sendrecv(mine, following, recvbuf=into, source=before), into)

    def finish(self) -> None:
        """Do nothing: calls return when they are done."""

    def close(self) -> None:
        """Give the communicator back."""
        self._comm.Free()


def _into(run: Callable[[], object], out: Array) -> Call:
    """Return the call of an operation that leaves its result in ``out``."""
    return Call(run=run, result=lambda _nothing: out.view(numpy.uint8))
