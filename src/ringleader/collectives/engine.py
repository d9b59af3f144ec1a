"""The engine: operations that a script asks for, agreed between ranks and carried out.

    submit → `submission_queue` → `negotiation_round` (agree → `execution`)
    run → `immediate_operations` (agree → `execution`)

An operation is put into a queue (`Engine.submit`) or done at once (`Engine.run`). An engine is of one group
of ranks. Groups have engines of their own, so that none waits for another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ringleader.collectives.communicators import RankLayout
from ringleader.collectives.digest_barrier import DigestBarrier
from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.collectives.exchange_times import ExchangeTimes
from ringleader.collectives.execution import Execution
from ringleader.collectives.framework_adapter import DeviceTransport
from ringleader.collectives.fusion_buffer import FusionBuffer
from ringleader.collectives.immediate_operations import ImmediateOperations
from ringleader.collectives.kernels import Kernels
from ringleader.collectives.negotiation_round import NegotiationRound
from ringleader.collectives.operations import (
    Signature,
    Work,
    signature_digest,
)
from ringleader.collectives.peer_wait import PeerWait
from ringleader.collectives.released_memory import ReleasedMemory
from ringleader.collectives.stall_check import Limits
from ringleader.collectives.submission_queue import SubmissionQueue
from ringleader.collectives.timeline.observer import Stage, activity_of
from ringleader.collectives.transports.transport import Region, Transport

STOP_SECONDS = 0.5
"""At the end of the engine what is under way gets this long."""


class Engine:
    """One life of the engine of a group: from ``init`` to ``shutdown``."""

    def __init__(
        self,
        *,
        ranks: RankLayout,
        barrier: DigestBarrier,
        transport: Transport,
        peer_wait: PeerWait,
        kernels: Kernels,
        limits: Limits,
        fusion_buffer: FusionBuffer | None,
        threads: bool,
        devices: DeviceTransport | None = None,
        announce_broken: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the parts. ``devices`` carries arrays that are not in host memory.

        ``announce_broken`` tells the peers that this engine does nothing any more.

        ``fusion_buffer`` lets small operations travel together, None keeps them apart. ``threads``: whether
        MPI may be called from a second thread.
        """
        self.ranks = ranks
        self.transport = transport
        self.kernels = kernels
        self.threads = threads
        self.times = ExchangeTimes(clock)
        """What exchanges of gradients took so far."""
        self._barrier = barrier
        self._peer_wait = peer_wait
        self._released = ReleasedMemory(transport)
        self.queue = SubmissionQueue(devices=devices, clock=clock)
        """What the script asked for, who is told of it, and what carries arrays on devices."""
        self._execution = Execution(
            queue=self.queue,
            barrier=barrier,
            transport=transport,
            kernels=kernels,
            fusion_buffer=fusion_buffer,
            peer_wait=peer_wait,
        )
        negotiation = NegotiationRound(
            rank=ranks.rank,
            queue=self.queue,
            execution=self._execution,
            barrier=barrier,
            transport=transport,
            peer_wait=peer_wait,
            limits=limits,
            released=self._released,
            times=self.times,
            announce_broken=announce_broken,
            clock=clock,
        )
        immediate = ImmediateOperations(
            queue=self.queue,
            negotiation=negotiation,
            execution=self._execution,
            barrier=barrier,
            transport=transport,
            peer_wait=peer_wait,
            released=self._released,
            times=self.times,
            clock=clock,
        )
        self.queue.work_on(negotiation.run, threads=threads)
        # Methods of the parts, so that they cost no call more.
        self.run = immediate.run
        self.run_again = immediate.run_again
        self.submit = self.queue.submit
        self.submit_again = self.queue.submit_again
        self.submit_all = self.queue.submit_all
        self.wait = self.queue.wait
        self.advance = self.queue.advance

    @property
    def meetings(self) -> int:
        """Return how often this rank has come to meet the others for operations."""
        return self._barrier.meetings

    def join(self, serial: int) -> tuple[int, int]:
        """Take part in the others' reductions with zeros until all ranks join.

        Return who was the last, and the largest ``serial`` of all ranks: those that joined early have counted
        fewer operations than the others, and are to go on as these do.
        """
        work = _control_work("join", serial=serial)
        self.queue.run(work)
        last, counted = work.out
        return last, counted

    def agree_on_sets(self, change: str) -> None:
        """Wait until all ranks ask for the same change of the process sets. Collective.

        So a rank that asks for one while others are in an operation is told as any mismatch is:
        `MismatchError`, on all ranks.
        """
        self.run(_control_work("process_set", note=change))

    def register(self, count: int, dtype: str, device: str = "cpu") -> Region:
        """Make memory in which gradients can be reduced in place, in turn with the operations. Collective."""
        if device != "cpu":
            if self.queue.devices is None:
                raise HorovodInternalError(f"arrays on {device} cannot be carried here")
            return self.queue.devices.register(count, dtype, device)
        self._released.look_again()
        work = _control_work("register", dtype=dtype, shape=(count,))
        self.run(work)
        region: Region = work.out
        return region

    def release(self, region: Region) -> None:
        """Say that this rank needs memory that `register` made no more. Not collective, and waits for nobody.

        May be called at any time, also by a finaliser in the middle of anything else. The memory goes
        when all ranks have released it and no array of theirs is left over it: they tell each other
        with the next operation after a release, or the next `register`. Memory of this rank's own goes with
        its last array, as any does.
        """
        self._released.add(region)

    def meet(self) -> None:
        """Wait until all ranks have called this. Collective; nothing where ranks are uncoupled."""
        self.run(_control_work("barrier"))

    def cut(self, region: Region, start: int, count: int) -> Region:
        """Return a part of a registered region as a region of its own; nothing is allocated or copied."""
        if region.device != "cpu" and self.queue.devices is not None:
            return self.queue.devices.cut(region, start, count)
        return self.transport.cut(region, start, count)

    @property
    def converts(self) -> bool:
        """Return whether regions on the host may have values of another element type."""
        return self.transport.converts

    def divide(self, region: Region, start: int, stop: int) -> Region | None:
        """Return a whole registered region as memory of which this rank owns a part; None where it cannot be.

        All ranks get a region, or all get None.
        """
        return self.transport.divide(region, start, stop) if region.device == "cpu" else None

    def publish_parts(self, region: Region, name: str) -> None:
        """Bring everybody's part of divided memory to all ranks, which meet afterwards. Collective."""
        signature = Signature(kind="publish_parts", dtype=region.dtype, shape=(region.count,))
        digest = signature_digest(signature)
        self.run(Work(signature, digest, name=name, serial=0, array=region, out=region))

    def meet_for_parts(self, name: str) -> None:
        """Wait until all ranks are here. None may have joined: each has parts that it alone can step."""
        self.run(_control_work("parameter_parts", name=name))

    def register_gradients(self, work: Work) -> None:
        """Remember a ``gradients`` work, so that this rank can take part in it when it has joined."""
        self._execution.gradients[work.name] = work

    def forget_gradients(self, work: Work) -> None:
        """Forget what `register_gradients` remembered, if it is still that."""
        if self._execution.gradients.get(work.name) is work:
            del self._execution.gradients[work.name]

    def finish(self, under_way: Sequence[Work], rest: Sequence[Work]) -> None:
        """Do ``gradients`` works of which some were submitted before; the time is what the script waits."""
        with self.times.waiting():
            for work in rest:
                self.submit(work)
            for work in (*under_way, *rest):
                self.wait(work)

    def launch(self, work: Work) -> None:
        """Launch a ``gradients`` work on its device, in the sequence that a ``launch`` work has granted.

        From any thread, and without meeting the other ranks; `delivered` has the script's stream wait.
        """
        queue, devices = self.queue, self.queue.devices_for(work)
        if queue.broken:
            raise HorovodInternalError(queue.broken)
        if queue.observer is not None:
            queue.observer.note(Stage.SUBMITTED, work)
            queue.observer.note(Stage.EXECUTING, work, activity_of(devices.name, work.signature.kind))
        devices.launch(work)
        if queue.observer is not None:
            queue.observer.note(Stage.FINISHED, work)

    def end_sequence(self, launched: Sequence[Work]) -> None:
        """Have this thread's streams wait for what was launched, in this order, on all devices."""
        devices = self.queue.devices_for(launched[-1])
        devices.end_sequence(launched)

    def close(self, *, why: str) -> bool:
        """End what is pending with an error and stop the progress thread.

        Return False where something of MPI's is still under way, so that nothing which the ranks own
        together can be given back.
        """
        queue = self.queue
        idle = queue.stop(STOP_SECONDS)
        if not idle or not queue.lock.acquire(timeout=STOP_SECONDS):
            self._peer_wait.cancelled = why
            if not queue.lock.acquire(timeout=10 * STOP_SECONDS):
                return False
        try:
            queue.break_off(queue.broken or why)
        finally:
            queue.lock.release()
        self._execution.close()
        return not self._peer_wait.abandoned


def _control_work(
    kind: str,
    *,
    name: str | None = None,
    serial: int = 0,
    dtype: str = "uint8",
    shape: tuple[int, ...] = (),
    note: str = "",
) -> Work:
    """Return an operation that carries no array of the script's."""
    signature = Signature(kind=kind, dtype=dtype, shape=shape, note=note)
    return Work(signature, signature_digest(signature), name=name, serial=serial, array=None, out=None)
