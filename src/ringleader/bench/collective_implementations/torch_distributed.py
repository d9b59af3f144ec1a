"""Gloo and NCCL, as ``torch.distributed`` offers them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ringleader.bench.collective_implementations.implementation import MEAN_NOTE, Call, NotOfferedError
from ringleader.bench.collective_implementations.memory import Memory, bytes_of_tensor
from ringleader.bench.collective_plan import REDUCING
from ringleader.bench.collective_values import Case


class TorchDistributed:
    """A group of all ranks with one backend."""

    def __init__(self, backend: str, *, seconds: float) -> None:
        """``backend``: ``gloo`` or ``nccl``; ``seconds``: until an operation counts as failed.

        The ranks meet where the launcher's MASTER_ADDR and MASTER_PORT say, as in any script.
        """
        import torch.distributed

        self._backend = backend
        self._dist: Any = torch.distributed
        timeout = timedelta(seconds=seconds)
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo", timeout=timeout)
        self._group: Any = torch.distributed.new_group(backend=backend, timeout=timeout)

    def prepare(self, case: Case, send: Memory, receive: Memory, *, in_place: bool) -> Call:
        """See ``Implementation``."""
        if case.operation in REDUCING:
            return self._reduction(case, send, receive, in_place)
        return self._move(case, send, receive, in_place)

    def _reduction(self, case: Case, send: Memory, receive: Memory, in_place: bool) -> Call:
        dist, group = self._dist, self._group
        kinds = {"prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
        op = kinds.get(case.redop, dist.ReduceOp.SUM)
        divides = case.redop == "avg" and self._backend == "gloo"
        if case.redop == "avg" and not divides:
            op = dist.ReduceOp.AVG
        if case.operation == "allreduce":
            if not in_place:
                raise NotOfferedError("torch.distributed reduces in place only")
            out = receive.tensor(case.dtype, 0, case.part_bytes)
            return _into(lambda: dist.all_reduce(out, op, group=group), out, case.ranks if divides else 0)
        # PyTorch 2.13 has given these two another name.
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        start = case.rank * case.part_bytes if in_place else 0
        source = (receive if in_place else send).tensor(case.dtype, 0, case.sent_bytes)
        out = receive.tensor(case.dtype, start, case.part_bytes)
        return _into(
            lambda: scatter(out, source, op, group=group),
            out,
            case.ranks if divides else 0,
        )

    def _move(self, case: Case, send: Memory, receive: Memory, in_place: bool) -> Call:
        dist, group = self._dist, self._group
        mine = send.tensor(case.dtype, 0, case.sent_bytes)
        out = receive.tensor(case.dtype, 0, case.received_bytes)
        if case.operation == "broadcast":
            if not in_place:
                raise NotOfferedError("torch.distributed broadcasts in place only")
            return _into(lambda: dist.broadcast(out, case.root, group=group), out)
        if case.operation == "allgather":
            part = receive.tensor(case.dtype, case.rank * case.part_bytes, case.part_bytes)
            source = part if in_place else mine
            gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
            return _into(lambda: gather(out, source, group=group), out)
        if case.operation == "alltoall":
            return _into(lambda: dist.all_to_all_single(out, mine, group=group), out)
        following, before = (case.rank + 1) % case.ranks, (case.rank - 1) % case.ranks

        def exchange() -> None:
            both = [
                dist.P2POp(dist.isend, mine, following, group),
                dist.P2POp(dist.irecv, out, before, group),
            ]
            for work in dist.batch_isend_irecv(both):
                work.wait()

        return _into(exchange, out)

    def finish(self) -> None:
        """Wait for the GPU, where NCCL's calls return early."""
        if self._backend == "nccl":
            import torch

            torch.cuda.synchronize()

    def close(self) -> None:
        """Leave the group, and the world with the last one."""
        if self._dist.is_initialized():
            self._dist.destroy_process_group()


def _into(run: Callable[[], object], out: Any, divisor: int = 0) -> Call:
    """Return the call of an operation that leaves its result in ``out``, divided where there is a divisor."""
    if not divisor:
        return Call(run=run, result=lambda _nothing: bytes_of_tensor(out))

    def mean() -> None:
        run()
        out.div_(divisor, rounding_mode=None if out.is_floating_point() else "trunc")

    return Call(run=mean, result=lambda _nothing: bytes_of_tensor(out), note=MEAN_NOTE)
