"""The measurement of ``pair_sweep`` with messages of torch.distributed: NCCL's, between GPUs.

MPI still carries what the two ranks tell each other. The first message of a pair makes its communicator,
which waits without a deadline of ours; afterwards only the end of a batch is waited for, and that has one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Protocol

from ringleader.bench.pair_messages import Allocate
from ringleader.bench.pair_plan import PairPlan
from ringleader.bench.pair_sweep import PairSweep
from ringleader.bench.peer_messages import Clock, Idle
from ringleader.bench.point_to_point import SilentPartnerError

OPEN_SECONDS = 60.0


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


class GroupSweep(PairSweep):
    """Measures all sizes of a plan between this rank and one partner at a time."""

    def __init__(
        self,
        world: Any,
        plan: PairPlan,
        *,
        allocate: Allocate,
        open_channel: OpenChannel,
        clock: Clock = time.monotonic,
    ) -> None:
        """``world``: an mpi4py communicator; the partner's number counts in it."""
        super().__init__(world, plan, allocate=allocate, clock=clock)
        self._open, self._opened = open_channel, dict[tuple[int, int], Channel]()
        self._ack = allocate(1)

    def _channel(self, partner: int, turn: int) -> Channel:
        """Return the channel of the pair, opened with its first message."""
        if (turn, partner) not in self._opened:
            self._opened = {(turn, partner): self._open(turn, partner, self._leads)}
        return self._opened[turn, partner]

    def _finish(self, channel: Channel, deadline: float, partner: int, during: str) -> None:
        idle = Idle(self._clock, deadline)
        while not channel.is_done():
            if not idle.may_go_on():
                raise SilentPartnerError(partner, during, idle.waited)

    def _bounce_once(self, partner: int, turn: int, size: int, deadline: float) -> None:
        channel = self._channel(partner, turn)
        there, here = self._there[:size], self._here[:size]
        if self._leads:
            channel.send(there)
            channel.receive(here)
        else:
            channel.receive(here)
            channel.send(there)
        self._finish(channel, deadline, partner, "latency")

    def _bounces(self, partner: int, turn: int, size: int, count: int, deadline: float) -> list[float]:
        self._order_bounces(partner, turn, size, count, deadline)
        times = []
        for _ in range(count):
            began = self._clock()
            self._bounce_once(partner, turn, size, deadline)
            times.append(max(self._clock() - began, 1e-9))
        return times

    def _answer_bounces(
        self, partner: int, turn: int, size: int, count: int, deadline: float, ready: Callable[[], None]
    ) -> None:
        ready()
        for _ in range(count):
            self._bounce_once(partner, turn, size, deadline)

    def _parts(self, size: int, window: int) -> list[Any]:
        return [self._here[at * size : (at + 1) * size] for at in range(window)]

    def _send_windows(
        self, partner: int, turn: int, size: int, window: int, count: int, deadline: float
    ) -> float:
        channel = self._channel(partner, turn)
        part = self._there[:size]
        began = self._clock()
        for _ in range(count):
            for _ in range(window):
                channel.send(part)
            channel.receive(self._ack)
        self._finish(channel, deadline, partner, "bandwidth")
        return max(self._clock() - began, 1e-9)

    def _take_windows(
        self,
        partner: int,
        turn: int,
        size: int,
        window: int,
        count: int,
        deadline: float,
        *,
        ready: Callable[[], None],
    ) -> None:
        channel = self._channel(partner, turn)
        ready()
        for _ in range(count):
            for part in self._parts(size, window):
                channel.receive(part)
            channel.send(self._ack)
        self._finish(channel, deadline, partner, "bandwidth")

    def _both_windows(
        self,
        partner: int,
        turn: int,
        size: int,
        window: int,
        count: int,
        deadline: float,
        *,
        ready: Callable[[], None],
        leads: bool = True,
    ) -> float:
        channel = self._channel(partner, turn)
        out, into = [self._there[:size]] * window, self._parts(size, window)
        ready()
        if leads:
            self._await_ready(partner, turn, deadline)
        began = self._clock()
        for _ in range(count):
            channel.both(out, into)
        self._finish(channel, deadline, partner, "both ways")
        return max(self._clock() - began, 1e-9)


class NcclChannel:
    """Between two GPUs, through a process group of two of its own."""

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
