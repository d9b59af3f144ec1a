"""A group of `torch.distributed` of our own: what NCCL and Gloo can do, with the engine's way of waiting.

The group is private: it is not the default group, so that a script may use `torch.distributed` beside it. All
calls are made by the engine, which has every rank make them in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Condition
from typing import Any

import torch

from ringleader.engine.exceptions import HorovodInternalError, is_transport_error, known_to_peers
from ringleader.engine.operations import ReduceOp
from ringleader.engine.peer_wait import PeerWait
from ringleader.engine.traffic import CommunicatorTraffic
from ringleader.torch.c10d.group_watch import GroupWatch, ThreadedCall

_NATIVE = ("uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
NATIVE = frozenset(getattr(torch, name) for name in _NATIVE)
"""Element types that both NCCL and Gloo reduce. Every other one travels as bytes and is reduced by us."""


LEAST_NCCL = (2, 11, 1)
"""Averages inside NCCL came with 2.10, factors with 2.11.1."""
MOST_TOGETHER = 512
"""Tensors that one call takes; NCCL refuses more than 2048 operations in a group."""


@dataclass(frozen=True, kw_only=True)
class InnerReduction:
    """A reduction as the backend is asked for it, and the factor that it leaves to be applied after it."""

    name: str
    """``SUM``, ``MIN``, ``MAX``, ``PRODUCT``, ``AVG``, or ``PREMUL_SUM``, of values times `factor`."""
    factor: float = 1.0
    """Of ``PREMUL_SUM``."""
    left: float = 1.0
    """Factor to apply to the result."""


def inner_reduction(
    op: ReduceOp, factor: float, dtype: torch.dtype, *, size: int, scales: bool
) -> InnerReduction:
    """Return how a backend carries out ``op`` with a factor on the result. Pure.

    ``scales``: whether the backend can scale floating-point sums itself, as NCCL can. Integers are scaled by
    our own rule (`scale_integers`), and minima, maxima and products have nothing inside.
    """
    if op is not ReduceOp.SUM or factor == 1.0 or not scales or not dtype.is_floating_point:
        return InnerReduction(name=op.name, left=factor)
    if factor == 1.0 / size:
        return InnerReduction(name="AVG")
    # PyTorch before 2.14 hands NCCL a float32 for bfloat16, of which it reads the two bytes that are zero in
    # a power of two (pytorch issue 190745). In float16 a small factor would lose its digits.
    if dtype is torch.bfloat16 or abs(factor) < torch.finfo(dtype).tiny:
        return InnerReduction(name=op.name, left=factor)
    return InnerReduction(name="PREMUL_SUM", factor=factor)


def nccl_too_old(version: tuple[int, ...]) -> str:
    """Return why a version of NCCL cannot be used, empty where it can. Pure."""
    if version >= LEAST_NCCL:
        return ""
    found, least = (".".join(map(str, one)) for one in (version, LEAST_NCCL))
    return (
        f"NCCL {found} is loaded and {least} is needed: use the NCCL that PyTorch was installed with "
        "(LD_LIBRARY_PATH or LD_PRELOAD may name another)"
    )


def missing(backend: str) -> str:
    """Return why this PyTorch has no such backend, empty where it has. ``backend``: ``nccl`` or ``gloo``."""
    distributed = torch.distributed
    if not distributed.is_available():
        return "this PyTorch was built without torch.distributed"
    there = distributed.is_nccl_available() if backend == "nccl" else distributed.is_gloo_available()
    if not there:
        return f"this PyTorch was built without {'NCCL' if backend == 'nccl' else 'Gloo'}"
    return nccl_too_old(torch.cuda.nccl.version()) if backend == "nccl" else ""  # type: ignore[no-untyped-call]


class ProcessGroup:
    """All ranks of one wire, able to exchange tensors of one kind of device."""

    def __init__(
        self,
        backend: str,
        raw: Any,
        store: Any,
        peer_wait: PeerWait,
        traffic: CommunicatorTraffic,
        *,
        name: str = "",
        watch: GroupWatch | None = None,
        timeout: float = 60.0,
    ) -> None:
        """Take a backend of `torch.distributed`, the store that it was made with, and what counts bytes.

        ``watch`` bounds its end, for which ``timeout`` in seconds is left where all ranks end together.
        """
        from torch.distributed import distributed_c10d

        self._c10d = distributed_c10d
        self.backend = backend
        """``nccl`` or ``gloo``."""
        self.name = f"{backend} of {name or 'all ranks'}"
        """Which group it is, in words."""
        self._raw = raw
        self._store = store
        """Kept as long as the group, because NCCL keeps using it."""
        self._peer_wait = peer_wait
        self._traffic = traffic
        self._watch = watch or GroupWatch()
        self._timeout = timeout
        self._refused = ""
        self._inside = 0
        self._nobody_inside = Condition()
        self._on_host = backend == "gloo"
        self.has_reduce_scatter = backend == "nccl"
        """Whether `reduce_scatter` may be used. Gloo's moves twice the bytes and its end cannot be seen."""
        self.scales = backend == "nccl"
        """Whether factors on floating-point sums are applied inside the backend."""

    def allreduce(self, flats: Sequence[torch.Tensor], op: ReduceOp, factor: float = 1.0) -> float:
        """Reduce 1-D tensors of one `NATIVE` type over all ranks in place, in one call.

        Returns what is left of the ``factor`` on the results: 1.0 where the backend has applied it.
        """
        inner = inner_reduction(op, factor, flats[0].dtype, size=self._raw.size(), scales=self.scales)
        works = []
        for start in range(0, len(flats), MOST_TOGETHER):
            part = list(flats[start : start + MOST_TOGETHER])
            self._traffic.allreduce(sum(flat.nbytes for flat in part))
            together = len(part) > 1
            options = self._options("AllreduceCoalescedOptions" if together else "AllreduceOptions")
            options.reduceOp = self._reduction(inner)
            works.append(self._begin("allreduce_coalesced" if together else "allreduce", part, options))
        self._finish(works)
        return inner.left

    def _options(self, kind: str) -> Any:
        """Return options of a call. NCCL works on the current stream, and then returns no work."""
        options = getattr(self._c10d, kind)()
        options.asyncOp = self._on_host
        return options

    def _reduction(self, inner: InnerReduction) -> Any:
        if inner.name == "PREMUL_SUM":
            make: Any = torch._C._distributed_c10d._make_nccl_premul_sum
            return make(inner.factor)
        return getattr(self._c10d.ReduceOp, inner.name)

    def broadcast(self, parts: Sequence[tuple[torch.Tensor, int]]) -> None:
        """Bring each 1-D tensor of the list from its root to all ranks; empty ones are passed over."""
        works = []
        for flat, root in parts:
            if flat.numel():
                options = self._options("BroadcastOptions")
                options.rootRank, options.rootTensor = root, 0
                self._traffic.broadcast(flat.nbytes, root)
                works.append(self._begin("broadcast", [as_bytes(flat)], options))
        self._finish(works)

    def allgather(self, out: torch.Tensor, own: torch.Tensor) -> None:
        """Bring the equally long 1-D tensors of all ranks into ``out``, in rank order."""
        self._traffic.allgather([own.nbytes] * (out.numel() // own.numel()))
        options = self._options("AllgatherOptions")
        self._finish([self._begin("_allgather_base", as_bytes(out), as_bytes(own), options)])

    def alltoall(
        self, out: torch.Tensor, own: torch.Tensor, received: Sequence[int], sent: Sequence[int]
    ) -> None:
        """Give every rank its part of the 1-D ``own``; counts are elements per rank."""
        size = own.element_size()
        receive, send = [size * count for count in received], [size * count for count in sent]
        self._traffic.alltoall(receive, send)
        options = self._options("AllToAllOptions")
        self._finish([self._begin("alltoall_base", as_bytes(out), as_bytes(own), receive, send, options)])

    def reduce_scatter(self, out: torch.Tensor, own: torch.Tensor, factor: float = 1.0) -> float:
        """Sum the 1-D ``own`` of a `NATIVE` type and leave this rank's equal part of the sum in ``out``.

        Returns what is left of the ``factor``, as `allreduce` does.
        """
        inner = inner_reduction(ReduceOp.SUM, factor, own.dtype, size=self._raw.size(), scales=self.scales)
        options = self._options("ReduceScatterOptions")
        options.reduceOp = self._reduction(inner)
        self._traffic.reduce_scatter(own.nbytes)
        self._finish([self._begin("_reduce_scatter_base", out, own, options)])
        return inner.left

    def connect(self, device: torch.device) -> None:
        """Make NCCL's communicator now, while a failure can still be answered by all ranks together."""
        if not self._on_host:
            torch.cuda.set_device(device)  # of this thread: NCCL's set-up looks at the current one
            self._call("eager_connect_single_device", device)

    def _call(self, call: str, *arguments: Any) -> Any:
        """Call the backend, unless the group has been given up."""
        with self._nobody_inside:
            if self._refused:
                raise known_to_peers(f"{self.name} in {self._peer_wait.subject}: {self._refused}")
            raw, self._inside = self._raw, self._inside + 1
        try:
            return getattr(raw, call)(*arguments)
        finally:
            with self._nobody_inside:
                self._inside -= 1
                self._nobody_inside.notify_all()

    def _begin(self, call: str, *arguments: Any) -> Any:
        try:
            return self._call(call, *arguments)
        except RuntimeError as error:
            raise self._broken(error) from error

    def _finish(self, works: Sequence[Any]) -> None:
        for work in works:
            if work is None:  # of NCCL on the current stream, where what comes next comes after it
                continue
            if self._on_host:
                self._peer_wait.until(work.is_completed, _nobody_known)
            try:
                # On a GPU this makes the current stream wait, not this thread.
                work.wait()
            except RuntimeError as error:
                raise self._broken(error) from error

    def _broken(self, error: RuntimeError) -> Exception:
        """Return what to raise. What means this process alone, as a fault of its GPU, is left as it is."""
        if isinstance(error, HorovodInternalError) or not is_transport_error(error):
            return error
        gone = self._peer_wait.ended()
        who = " and ".join(f"rank {rank} {how}" for rank, how in sorted(gone.items())[:4])
        who = who or self._watch.why_broken_soon()
        said = f"{who}; " * bool(who) + f"{self.name} in {self._peer_wait.subject}: {error}"
        return HorovodInternalError(said)

    # the end

    def refuse(self, why: str) -> None:
        """See `WatchedGroup`."""
        with self._nobody_inside:
            self._refused = self._refused or why

    def abort(self) -> None:
        """See `WatchedGroup`."""
        if self._raw is not None:
            self._raw.abort()
        with self._nobody_inside:
            self._nobody_inside.wait_for(lambda: not self._inside)
            kept, self._raw, self._store = [self._raw, self._store], None, None
        # What goes with them may wait: Gloo's threads for what they do. Nobody waits for that.
        ThreadedCall(kept.clear, "ringleader-release")

    def error(self) -> str:
        """See `WatchedGroup`."""
        raw = self._raw
        if self._on_host or raw is None:
            return ""
        found = str(raw.get_error().name)
        return "" if found == "SUCCESS" else f"NCCL says {found}"

    def close(self, *, together: bool) -> None:
        """Let go of the group; without ``together`` what is under way on it is given up."""
        if self._raw is None:
            return
        clean = together and not self._refused
        self._watch.end(self, self._shut_down if clean else None, seconds=self._timeout)
        self._refused, self._raw, self._store = self._refused or "it was closed", None, None

    def _shut_down(self) -> None:
        if not self._on_host:
            self._raw.shutdown()


def as_bytes(flat: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a 1-D tensor as a view: they travel alike whatever the element type."""
    return flat.view(torch.uint8)


def _nobody_known() -> None:
    """Say whom a request waits for: the backend does not tell."""
