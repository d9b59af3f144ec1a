"""A group of `torch.distributed` of our own: what NCCL and Gloo can do, with the engine's way of waiting.

The group is private: it is not the default group, so that a script may use `torch.distributed` beside it. All
calls are made by the engine, which has every rank make them in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch

from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.collectives.mpi_calls import MpiCalls
from ringleader.collectives.operations import ReduceOp
from ringleader.collectives.peer_wait import PeerWait
from ringleader.collectives.traffic import CommunicatorTraffic
from ringleader.torch.c10d.rendezvous import Rendezvous, agree, call_in_thread, rendezvous

NATIVE = frozenset(
    {
        torch.uint8,
        torch.int8,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    }
)
"""Element types that both NCCL and Gloo reduce. Every other one travels as bytes and is reduced by us."""


def missing(backend: str) -> str:
    """Return why this PyTorch has no such backend, empty where it has. ``backend``: ``nccl`` or ``gloo``."""
    distributed = torch.distributed
    if not distributed.is_available():
        return "this PyTorch was built without torch.distributed"
    there = distributed.is_nccl_available() if backend == "nccl" else distributed.is_gloo_available()
    return "" if there else f"this PyTorch was built without {'NCCL' if backend == 'nccl' else 'Gloo'}"


class ProcessGroup:
    """All ranks of one wire, able to exchange tensors of one kind of device."""

    def __init__(
        self, backend: str, raw: Any, store: Any, peer_wait: PeerWait, traffic: CommunicatorTraffic
    ) -> None:
        """Take a backend of `torch.distributed`, the store that it was made with, and what counts bytes."""
        from torch.distributed import distributed_c10d

        self._c10d = distributed_c10d
        self.backend = backend
        """``nccl`` or ``gloo``."""
        self._raw = raw
        self._store = store
        """Kept as long as the group, because NCCL goes on to use it."""
        self._peer_wait = peer_wait
        self._traffic = traffic
        self._on_host = backend == "gloo"
        self.has_reduce_scatter = backend == "nccl"
        """Whether `reduce_scatter` may be used. Gloo's moves twice the bytes and its end cannot be seen."""
        ops = distributed_c10d.ReduceOp
        self._ops: dict[ReduceOp, Any] = {
            ReduceOp.SUM: ops.SUM,
            ReduceOp.MIN: ops.MIN,
            ReduceOp.MAX: ops.MAX,
            ReduceOp.PRODUCT: ops.PRODUCT,
        }

    def allreduce(self, flat: torch.Tensor, op: ReduceOp) -> None:
        """Reduce a 1-D tensor of a `NATIVE` type over all ranks in place."""
        options = self._c10d.AllreduceOptions()
        options.reduceOp = self._ops[op]
        self._traffic.allreduce(flat.nbytes)
        self._finish([self._begin("allreduce", [flat], options)])

    def broadcast(self, parts: Sequence[tuple[torch.Tensor, int]]) -> None:
        """Bring each 1-D tensor of the list from its root to all ranks; empty ones are passed over."""
        works = []
        for flat, root in parts:
            if flat.numel():
                options = self._c10d.BroadcastOptions()
                options.rootRank, options.rootTensor = root, 0
                self._traffic.broadcast(flat.nbytes, root)
                works.append(self._begin("broadcast", [as_bytes(flat)], options))
        self._finish(works)

    def allgather(self, out: torch.Tensor, own: torch.Tensor) -> None:
        """Bring the equally long 1-D tensors of all ranks into ``out``, in rank order."""
        self._traffic.allgather([own.nbytes] * (out.numel() // own.numel()))
        self._finish([self._begin("_allgather_base", as_bytes(out), as_bytes(own))])

    def alltoall(
        self, out: torch.Tensor, own: torch.Tensor, received: Sequence[int], sent: Sequence[int]
    ) -> None:
        """Give every rank its part of the 1-D ``own``; counts are elements per rank."""
        size = own.element_size()
        receive, send = [size * count for count in received], [size * count for count in sent]
        self._traffic.alltoall(receive, send)
        self._finish([self._begin("alltoall_base", as_bytes(out), as_bytes(own), receive, send)])

    def reduce_scatter(self, out: torch.Tensor, own: torch.Tensor) -> None:
        """Sum the 1-D ``own`` of a `NATIVE` type and leave this rank's equal part of the sum in ``out``."""
        self._traffic.reduce_scatter(own.nbytes)
        self._finish([self._begin("_reduce_scatter_base", out, own)])

    def _begin(self, call: str, *arguments: Any) -> Any:
        try:
            return getattr(self._raw, call)(*arguments)
        except RuntimeError as error:
            raise self._broken(error) from error

    def _finish(self, works: Sequence[Any]) -> None:
        for work in works:
            if self._on_host:
                self._peer_wait.until(work.is_completed, _nobody_known)
            try:
                # On a GPU this makes the current stream wait, not this thread.
                work.wait()
            except RuntimeError as error:
                raise self._broken(error) from error

    def _broken(self, error: RuntimeError) -> HorovodInternalError:
        gone = self._peer_wait.ended()
        who = " and ".join(f"rank {rank} {how}" for rank, how in sorted(gone.items())[:4])
        said = f"{who}; " * bool(who) + f"{self.backend} in {self._peer_wait.subject}: {error}"
        return HorovodInternalError(said)

    def close(self, *, together: bool) -> None:
        """Let go of the group; without ``together`` what is under way on it is given up."""
        raw, self._raw, self._store = self._raw, None, None
        if raw is None or self._on_host:
            return
        if together:
            raw.shutdown()
        else:
            raw.abort()


def as_bytes(flat: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a 1-D tensor as a view: they travel alike whatever the element type."""
    return flat.view(torch.uint8)


def open_process_group(
    backend: str,
    mpi_calls: MpiCalls,
    peer_wait: PeerWait,
    *,
    one_host: bool,
    timeout: float,
    device: torch.device,
    traffic: CommunicatorTraffic,
) -> ProcessGroup:
    """Make a group for this rank's tensors on ``device``. Collective; `HorovodInternalError` on every rank.

    ``timeout`` in seconds bounds an operation inside the backend; where it has passed in NCCL, PyTorch ends
    the process.
    """
    agree(mpi_calls, missing(backend))
    meeting = rendezvous(mpi_calls, peer_wait, one_host=one_host)
    limit = timedelta(seconds=timeout)
    connect = partial(_nccl, device=device) if backend == "nccl" else _gloo
    raw, problem = None, ""
    try:
        raw = call_in_thread(peer_wait, lambda: connect(meeting, mpi_calls.rank, mpi_calls.size, limit))
    except HorovodInternalError:
        raise
    except (RuntimeError, TypeError, AttributeError) as error:
        problem = f"{backend} could not connect: {error}"
    agree(mpi_calls, problem)
    return ProcessGroup(backend, raw, meeting.store, peer_wait, traffic)


def _gloo(meeting: Rendezvous, rank: int, size: int, timeout: timedelta) -> Any:
    from torch.distributed import ProcessGroupGloo

    group: Any = ProcessGroupGloo
    options = group._Options()
    # Gloo's own choice is the address of the host's name, which other hosts may not reach.
    options._devices = [group.create_device(hostname=meeting.own_address)]
    options._timeout = timeout
    options._threads = 2
    return group(meeting.store, rank, size, options)


def _nccl(meeting: Rendezvous, rank: int, size: int, timeout: timedelta, *, device: torch.device) -> Any:
    from torch.distributed import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options._timeout = timeout
    torch.cuda.set_device(device)  # of this thread: NCCL's set-up looks at the current one
    raw = ProcessGroupNCCL(meeting.store, rank, size, options)
    # The communicator is made now, while a failure can still be answered by all ranks together.
    raw.eager_connect_single_device(device)
    return raw


def _nobody_known() -> None:
    """Say whom a request waits for: the backend does not tell."""
