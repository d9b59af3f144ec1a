"""Messages between GPUs: their memory, and the measurement of ``pair_sweep`` by torch.distributed (NCCL).

MPI still carries what the two ranks tell each other. The first message of a pair makes its communicator,
which waits without a deadline of ours; afterwards only the end of a batch is waited for, and that has one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from ringleader.bench.pair_plan import PairPlan
from ringleader.bench.pair_sweep import Allocate, Buffers, Order, PairSweep
from ringleader.bench.peer import READY, Peer

OPEN_SECONDS = 60.0
_CUDA_OF_MPICH = 0
"""MPIX_GPU_SUPPORT_CUDA of MPICH's mpi.h."""


# --- memory -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GpuMemory:
    """The memory of the GPU that this rank uses."""

    device: str
    """``NVIDIA H200``."""
    index: int
    """Of that device, as this process counts them."""
    allocate: Allocate
    """Bytes → a tensor of this many, written to."""
    mpi_takes_it: bool
    """Else NCCL sends it."""


class NoGpuMemoryError(Exception):
    """This rank cannot send from a GPU's memory; the text says why."""


def gpu_memory(environ: Mapping[str, str] = os.environ) -> GpuMemory:
    """Return the memory of this rank's GPU. Raises NoGpuMemoryError.

    MPI must have been initialized: only then it says whether it takes such memory.
    """
    try:
        import torch
    except ImportError:
        raise NoGpuMemoryError("PyTorch is not installed, and it is what gives memory of a GPU") from None
    if not torch.cuda.is_available():
        raise NoGpuMemoryError("PyTorch finds no GPU")
    mpi_takes_it = takes_gpu_memory()
    if not mpi_takes_it and not (torch.distributed.is_available() and torch.distributed.is_nccl_available()):
        from mpi4py import MPI

        name = MPI.Get_library_version().partition(",")[0].strip()
        raise NoGpuMemoryError(f"this MPI ({name}) does not take memory of a GPU, and PyTorch has no NCCL")
    count = torch.cuda.device_count()
    index = int(environ.get("LOCAL_RANK", "0")) % count if count > 1 else 0
    torch.cuda.set_device(index)

    def allocate(size: int) -> Any:
        memory = torch.ones(size, dtype=torch.uint8, device=f"cuda:{index}")
        torch.cuda.synchronize()
        return memory

    name = str(torch.cuda.get_device_name(index))
    return GpuMemory(device=name, index=index, allocate=allocate, mpi_takes_it=mpi_takes_it)


def takes_gpu_memory() -> bool:
    """Tell whether the MPI of this process says that it takes CUDA memory."""
    library = ctypes.CDLL(os.environ.get("MPI4PY_LIBMPI") or None)
    try:
        return bool(library.MPIX_Query_cuda_support())
    except AttributeError:  # not Open MPI
        answer = ctypes.c_int(0)
        try:
            failed = library.MPIX_GPU_query_support(_CUDA_OF_MPICH, ctypes.byref(answer))
        except AttributeError:
            return False
        return failed == 0 and bool(answer.value)


# --- messages ---------------------------------------------------------------------------------------------


class Channel(Protocol):
    """Messages between this rank and one partner; calls return before the messages have gone."""

    def send(self, part: Any) -> None:
        """Begin to send a tensor."""

    def receive(self, part: Any) -> None:
        """Begin to receive into a tensor."""

    def both(self, out: list[Any], into: list[Any]) -> None:
        """Begin to send and to receive at once."""

    def is_done(self) -> bool:
        """Tell whether everything begun so far has ended."""
        ...


OpenChannel = Callable[[int, int, bool], Channel]
"""Takes the turn, the partner's rank, and whether this rank leads the pair."""


class GpuSweep(PairSweep):
    """The sweep over a channel, which is opened with its first message."""

    def __init__(
        self,
        peer: Peer,
        plan: PairPlan,
        memory: Buffers,
        *,
        leads: bool,
        allocate: Allocate,
        open_channel: OpenChannel,
    ) -> None:
        """As of ``PairSweep``; ``allocate``: memory that the channel takes."""
        super().__init__(peer, plan, memory, leads=leads)
        self._open, self._ack = open_channel, allocate(1)
        self._opened: Channel | None = None

    def _channel(self) -> Channel:
        if self._opened is None:
            self._opened = self._open(self._peer.turn, self._peer.partner, self._leads)
        return self._opened

    def _finish(self, channel: Channel, during: str) -> None:
        self._peer.until(channel.is_done, during, channel, self._memory)

    def _round_trips(self, order: Order) -> list[float]:
        channel, times = self._channel(), []
        for _ in range(order.repeats):
            began = self._clock()
            channel.send(self._memory.there[: order.size])
            channel.receive(self._memory.here[: order.size])
            self._finish(channel, "latency")
            times.append(max(self._clock() - began, 1e-9))
        return times

    def _answer_round_trips(self, order: Order, ready: Callable[[], None]) -> None:
        ready()
        channel = self._channel()
        for _ in range(order.repeats):
            channel.receive(self._memory.here[: order.size])
            channel.send(self._memory.there[: order.size])
            self._finish(channel, "latency")

    def _send_windows(self, order: Order) -> float:
        channel, part = self._channel(), self._memory.there[: order.size]
        began = self._clock()
        for _ in range(order.repeats):
            for _ in range(order.window):
                channel.send(part)
            channel.receive(self._ack)
        self._finish(channel, "bandwidth")
        return max(self._clock() - began, 1e-9)

    def _take_windows(self, order: Order, *, ready: Callable[[], None]) -> None:
        channel = self._channel()
        ready()
        for _ in range(order.repeats):
            for part in self._parts(order):
                channel.receive(part)
            channel.send(self._ack)
        self._finish(channel, "bandwidth")

    def _both_windows(self, order: Order, *, ready: Callable[[], None]) -> float:
        channel = self._channel()
        out, into = [self._memory.there[: order.size]] * order.window, self._parts(order)
        ready()
        if self._leads:
            self._peer.hear(READY)
        began = self._clock()
        for _ in range(order.repeats):
            channel.both(out, into)
        self._finish(channel, "both ways")
        return max(self._clock() - began, 1e-9)


class NcclChannel:
    """Between two GPUs, through a process group of these two."""

    def __init__(self, store: Any, leads: bool, device: Any) -> None:
        """``store``: of this pair alone; ``device``: this rank's."""
        import torch
        from torch.distributed import ProcessGroupNCCL

        options = ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=OPEN_SECONDS)
        self._group: Any = ProcessGroupNCCL(store, 0 if leads else 1, 2, options)
        self._peer, self._device = int(leads), device
        cuda: Any = torch.cuda
        self._event = cuda.Event()
        self._works: list[Any] = []

    def send(self, part: Any) -> None:
        """Begin to send a tensor."""
        self._works.append(self._group.send([part], self._peer, 0))

    def receive(self, part: Any) -> None:
        """Begin to receive into a tensor."""
        self._works.append(self._group.recv([part], self._peer, 0))

    def both(self, out: list[Any], into: list[Any]) -> None:
        """Begin to send and to receive, as one operation of NCCL: else each would wait for the other."""
        self._group._start_coalescing(self._device)
        for there, here in zip(out, into, strict=True):
            self._group.send([there], self._peer, 0)
            self._group.recv([here], self._peer, 0)
        self._works.append(self._group._end_coalescing(self._device))

    def is_done(self) -> bool:
        """Tell whether the stream has come to the end of what was begun."""
        if self._works:
            for work in self._works:
                work.wait()  # the current stream waits, not this process
            self._works = []
            self._event.record()
        return bool(self._event.query())


def nccl_channels(device: Any, rank: int, environ: Mapping[str, str] = os.environ) -> OpenChannel:
    """Return what opens a channel of each pair; its two ranks meet at MASTER_ADDR, on rank 0's host."""
    import torch.distributed

    distributed: Any = torch.distributed
    store = distributed.TCPStore(
        environ["MASTER_ADDR"],
        int(environ["MASTER_PORT"]),
        is_master=rank == 0,
        wait_for_workers=False,
        timeout=timedelta(seconds=OPEN_SECONDS),
    )

    def opened(turn: int, partner: int, leads: bool) -> NcclChannel:
        name = f"{turn}-{min(rank, partner)}-{max(rank, partner)}"
        return NcclChannel(distributed.PrefixStore(name, store), leads, device)

    return opened
