"""Carrying out what all ranks have asked for: alone, packed together, or in the stead of a rank that joined.

`group_engine` finds out what that is; here it goes to the transport, and leaves the queue when done.
What an engine consists of, the time that exchanges take, and memory that ranks give back are here, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ringleader.engine.operations import GRADIENTS, Work
from ringleader.engine.timeline import Stage, activity_of

if TYPE_CHECKING:
    from ringleader.engine.agreement_barrier import DigestBarrier
    from ringleader.engine.communicator import Segment
    from ringleader.engine.engine_settings import Limits
    from ringleader.engine.framework_adapter import DeviceTransport
    from ringleader.engine.fusion_buffer import Batch, FusionBuffer, RoundPlan
    from ringleader.engine.group_communicators import RankLayout
    from ringleader.engine.negotiation import Decision
    from ringleader.engine.operations import Signature
    from ringleader.engine.peer_wait import PeerWait
    from ringleader.engine.reduction_kernels import Kernels
    from ringleader.engine.submission_queue import SubmissionQueue
    from ringleader.engine.timeline import Observer
    from ringleader.engine.transports.transport import Region, Transport


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineParts:
    """What the engine of a group works with."""

    ranks: RankLayout
    """Who this rank is."""
    barrier: DigestBarrier
    transport: Transport
    peer_wait: PeerWait
    """How this rank waits."""
    kernels: Kernels
    limits: Limits
    fusion_buffer: FusionBuffer | None = None
    """Lets small operations travel together; None keeps them apart."""
    threads: bool
    """Whether MPI may be called from a second thread."""
    devices: DeviceTransport | None = None
    """Carries arrays that are not in host memory."""
    announce_broken: Callable[[], None] = lambda: None
    """Tells the peers that this engine does nothing any more."""
    clock: Callable[[], float] = time.monotonic


class Execution:
    """What moves the arrays of one engine. Called by the thread that holds the queue's lock."""

    def __init__(self, parts: EngineParts, queue: SubmissionQueue) -> None:
        """Carry out what is in ``queue``."""
        self._queue = queue
        self.gradients: dict[str, Work] = {}
        """Exchanges of gradients that this rank can take part in when it has joined, by name. A finalizer may
        take one out at any time."""
        self._offered: dict[str, Work] = {}
        self._barrier, self._transport, self._peer_wait = parts.barrier, parts.transport, parts.peer_wait
        self._kernels, self._fusion_buffer = parts.kernels, parts.fusion_buffer

    def execute(self, work: Work, *, staged: int) -> None:
        """Have it carried by the transport for its arrays; who watches is not told."""
        signature = work.signature
        kind = signature.kind
        if signature.device != "cpu":
            self._queue.devices_for(work).execute(work)
        elif kind == "allreduce":  # first, as what the most frequent operation costs counts
            self._transport.execute(work, staged=staged)
        elif kind in GRADIENTS:
            region: Region = work.array
            self._transport.exchange(region, signature.op, signature.postscale)
        elif kind == "publish_parts":
            self._transport.publish(work.array)
        elif kind == "register":
            work.out = self._transport.register(signature.shape[0], signature.dtype)
        elif kind not in ("barrier", "join", "process_set", "parameter_parts"):
            self._transport.execute(work, staged=staged)

    def offers(self) -> tuple[tuple[str, Signature], ...]:
        """Return the exchanges of gradients that this rank can take part in; they stay for this round."""
        self._offered = self.gradients.copy()
        return tuple((name, work.signature) for name, work in self._offered.items())

    def carry_out_ready(self, decision: Decision) -> None:
        """Do what a decision says can be done, also what ranks that have joined did not ask for."""
        for name in decision.ready:
            if name in decision.copied:
                self._reduce_copied(name, decision.absent[name])
        ready = [name for name in decision.ready if name not in decision.copied]
        works = [self._queue.works.get(name) or self._stand_in(name, decision.absent[name]) for name in ready]
        if any(
            name in decision.absent and work.signature.kind == "gradients"
            for name, work in zip(ready, works, strict=True)
        ):
            # Ranks reduce straight from each other's memory: first all that joined must have put zeros there.
            self._barrier.agree(0)
        self._offered = {}
        self._carry_out(self._batches(works))

    def stage_first(self, plan: RoundPlan) -> int:
        """Lay out what a plan does first, before the ranks synchronize for it; return how, 0 where it was
        not: where nothing like it was done before, there is no memory for it.

        Ranks pack what follows where this was packed, so it is laid out when this is done.
        """
        buffer, new = self._fusion_buffer, plan.batches is None and not plan.joins
        if new and buffer is not None and buffer.is_known(plan.in_order):
            plan.batches = self._batches(plan.in_order)
        if plan.batches is None:
            return 0
        batch, works = plan.batches[0]
        if batch is None:
            return self._transport.stage(works[0]) if works[0].signature.device == "cpu" else 0
        if not batch.packed:
            return 0
        assert self._fusion_buffer is not None
        return self._transport.stage(self._fusion_buffer.pack(batch, works))

    def carry_out_plan(self, plan: RoundPlan, *, staged: int) -> None:
        """Do what is pending, as all ranks have it.

        ``staged``: how all ranks have laid out what comes first. A plan that has batches already has gone
        through `stage_first` for this round.
        """
        first_packed = plan.batches is not None
        if plan.batches is None:
            plan.batches = self._batches(plan.in_order)
        self._carry_out(plan.batches, staged=staged, first_packed=first_packed)

    def _batches(self, works: Sequence[Work]) -> list[tuple[Batch | None, list[Work]]]:
        """Return what travels together, as its batch, or None for one alone."""
        if len(works) <= 1 or self._fusion_buffer is None:
            return [(None, [work]) for work in works]
        return [
            (batch if len(batch.members) > 1 else None, [works[member] for member in batch.members])
            for batch in self._fusion_buffer.batches(works)
        ]

    def _carry_out(
        self,
        batches: Sequence[tuple[Batch | None, list[Work]]],
        *,
        staged: int = 0,
        first_packed: bool = False,
    ) -> None:
        queue, pending = self._queue, self._queue.works
        for batch, works in batches:
            first = works[0]
            self._peer_wait.subject = first if batch is None else Several(works)
            if queue.observer is None:
                self._do(batch, works, staged=staged, packed=first_packed)
            else:
                carrier = self._transport if first.signature.device == "cpu" else queue.devices_for(first)
                with self._shown(works, activity_of(carrier.name, first.signature.kind), queue.observer):
                    self._do(batch, works, staged=staged, packed=first_packed)
            # What `SubmissionQueue.finish` does, without a call for each of many small ones.
            for work in works:
                if pending.get(work.name) is work:
                    del pending[work.name]
                work.error = None
                if queue.observer is not None:
                    queue.observer.note(Stage.FINISHED, work)
                work.done = True
            staged, first_packed = 0, False

    def _do(self, batch: Batch | None, works: list[Work], *, staged: int, packed: bool) -> None:
        """Do works alone or together; ``packed``: whether they are in the batch's memory already."""
        if batch is None:
            self.execute(works[0], staged=staged)
        elif not batch.packed:
            self._queue.devices_for(works[0]).execute_together(works)
        else:
            assert self._fusion_buffer is not None
            work = batch.work if packed else self._fusion_buffer.pack(batch, works)
            assert work is not None
            self._transport.execute(work, staged=staged)
            self._fusion_buffer.unpack(batch, works)

    def close(self) -> None:
        """Let go of memory."""
        self.gradients.clear()
        self._offered.clear()
        if self._fusion_buffer is not None:
            self._fusion_buffer.close()

    def _stand_in(self, name: str, signature: Signature) -> Work:
        """Return the part of a rank that has joined, in an operation that it did not ask for: zeros."""
        if signature.kind == "gradients":
            work = self._offered[name]
            region: Region = work.array
            self._kernels.zero(region.mine if region.values is None else region.values)
            if signature.device != "cpu":
                self._queue.devices_for(work).submitted(work)
            return work
        array = None
        if signature.kind == "allreduce":
            array = self._kernels.empty(signature.shape, signature.dtype)
            self._kernels.zero(array)
        work = Work(signature, 0, name=None, serial=0, array=array, out=array)
        work.name = name
        return work

    def _reduce_copied(self, name: str, signature: Signature) -> None:
        """Reduce gradients for which a rank that has joined has no memory, as any other array."""
        # The gradients were scaled when they were laid out.
        plain = replace(signature, kind="allreduce", prescale=1.0, note="")
        asked = self._queue.works.get(name)
        if asked is None:
            self.execute(self._stand_in(name, plain), staged=0)
            return
        region: Region = asked.array
        if region.values is not None:
            self._kernels.copy(region.mine, region.values)
        work = Work(plain, 0, name=name, serial=0, array=region.mine, out=region.mine)
        work.stream_events = asked.stream_events
        self._peer_wait.subject = asked
        self.execute(work, staged=0)
        if region.values is not None:
            self._kernels.copy(region.values, region.mine)
        self._queue.finish(asked, None)

    @contextmanager
    def _shown(self, works: Sequence[Work], activity: str, observer: Observer) -> Iterator[None]:
        """Tell the observer what is being done with works, and have the transport tell it what follows."""

        def tell(phase: str) -> None:
            for work in works:
                observer.note(Stage.EXECUTING, work, phase)

        tell(activity)
        self._transport.tell = tell
        try:
            yield
        finally:
            self._transport.tell = None


class Several:
    """Operations in words, made when they are asked for."""

    def __init__(self, works: Sequence[Work]) -> None:
        """Take the operations."""
        self._works = works

    def __str__(self) -> str:
        shown = ", ".join(str(work) for work in self._works[:4])
        return f"{shown} and {len(self._works) - 4} more" if len(self._works) > 4 else shown


class ExchangeTimes:
    """How long a rank exchanges gradients, and how much of that it only waits for the slowest rank."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin with zero."""
        self.waiting_seconds = 0.0
        """Time in which exchanges of gradients waited for the slowest rank."""
        self.exchange_seconds = 0.0
        """Time in which they moved data."""
        self._clock = clock
        self._since: float | None = None
        """Since when the script waits for gradients that the queue carries; None: it does not."""
        self._stood = 0.0
        """Part of that wait in which other ranks had not arrived."""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Account for a wait of the script for gradients in the queue, which may run several rounds."""
        self._stood, self._since = 0.0, self._clock()
        began = self._since
        try:
            yield
        finally:
            self._since = None
            waited = self._clock() - began
            stood = min(self._stood, waited)
            self.waiting_seconds += stood
            self.exchange_seconds += waited - stood

    def met(self, began: float) -> None:
        """Note that a barrier of a round is over, which this rank reached at ``began``."""
        since = self._since
        if since is not None:
            self._stood += max(0.0, self._clock() - max(began, since))


class ReleasedMemory:
    """Shared memory that a rank needs no more: it goes when all ranks say so and no array is left over it.

    The ranks tell each other with the next operation after a release.
    """

    def __init__(self, transport: Transport) -> None:
        """Begin with nothing released of the transport's memory."""
        self._registered = transport.registered
        self._segments: dict[int, Segment] = {}
        self.to_tell = False
        """Whether the other ranks are to hear of something."""

    def add(self, region: Region) -> None:
        """Release a region; may be called at any time, also by a finalizer in the middle of anything else."""
        if self._registered is not None and region.segment is not None:
            self._segments[region.segment.number] = region.segment
            self.to_tell = True

    def look_again(self) -> None:
        """Report once more what arrays still used when it was reported: it may be free by now."""
        self.to_tell = bool(self._segments)

    def unused(self) -> tuple[int, ...]:
        """Return the segments that this rank no longer needs, to be reported to the others now."""
        self.to_tell = False
        if self._registered is None:
            return ()
        return tuple(self._registered.unused(list(self._segments.copy().values())))

    def give_back(self, numbers: Sequence[int]) -> None:
        """Free segments that no rank needs. Collective."""
        for number in numbers:
            segment = self._segments.pop(number)
            if self._registered is not None:
                self._registered.give_back(segment)
