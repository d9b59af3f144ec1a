"""The engine: operations that a script asks for, agreed between ranks and carried out.

    submit → negotiate → execute (see `execution`)

An operation is put into a queue (`submit`) or done at once (`run`). Whoever waits for one works on the queue
himself: there is no other thread to hand over to on the way. All work on the queue goes in *rounds*: ranks
meet on the board with the digest of everything they have pending; where the digests are equal everything
can be done, otherwise the ranks exchange their lists and `decide` what all of them have asked for, whatever
the order. Only when operations are pending and the script does something else does a second thread, the
*steward*, go on with the rounds.

An engine is of one group of ranks. Groups have engines of their own, so that none waits for another.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from operator import attrgetter

from ringleader.collectives.communicators import RankLayout
from ringleader.collectives.digest_barrier import DigestBarrier
from ringleader.collectives.exceptions import HorovodInternalError, is_transport_error, known_to_peers
from ringleader.collectives.execution import Execution, Several
from ringleader.collectives.framework_adapter import DeviceTransport
from ringleader.collectives.fusion_buffer import FusionBuffer
from ringleader.collectives.kernels import Kernels
from ringleader.collectives.negotiation import Decision, Limits, Pending, decide, decode, encode
from ringleader.collectives.operations import JOIN, MASK, Signature, Work, signature_digest
from ringleader.collectives.peer_wait import PeerWait
from ringleader.collectives.progress_thread import ProgressThread
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.timeline.observer import Observer
from ringleader.collectives.transports.regions import Region, SharedRegion
from ringleader.collectives.transports.transport import Registering, Transport

PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.01
"""Between two rounds that could do nothing: a tenth of the time since one could, within these limits."""
GRACE_SECONDS = 0.0005
"""A script that has just asked for something is about to ask for more, or to wait; the steward leaves it this
long to do so."""
LONGEST_GRACE_SECONDS = 0.005
"""What has been pending for so long the steward does, whatever the script is about."""
OUT_OF_THE_WAY_SECONDS = 0.005
"""How often the steward looks while the script itself is waiting for operations."""
STOP_SECONDS = 0.5
"""At the end of the engine what is under way gets this long."""

NEWS = 0xC2B2AE3D27D4EB4F
"""Added to the digest of a rank that has something to tell beside its operations."""
_DIGEST = attrgetter("digest")
_ORDER = attrgetter("order")
_JOIN_CALL = Signature(kind="join")
_JOIN_DIGEST = signature_digest(_JOIN_CALL)


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
        self.threads = threads
        self.waiting_seconds = 0.0
        """Time in which exchanges of gradients waited for the slowest rank, in all."""
        self.exchange_seconds = 0.0
        """Time in which they moved data, in all."""
        self._waits_since: float | None = None
        """Since when the script waits for gradients that the queue carries; None: it does not."""
        self._stood = 0.0
        """Part of that wait in which other ranks had not arrived."""
        self.observer: Observer | None = None
        """Is told what operations go through, where a timeline is written; set by `set_observer`."""
        self._barrier = barrier
        self._peer_wait = peer_wait
        self._limits = limits
        self._announce_broken = announce_broken
        self._clock = clock
        self._lock = threading.Lock()
        self._execution = Execution(
            barrier=barrier,
            transport=transport,
            devices=devices,
            kernels=kernels,
            fusion_buffer=fusion_buffer,
            peer_wait=peer_wait,
        )
        # Both are touched without the lock, by operations of dict and list that are one step.
        self._queue = self._execution.queue
        self._waiters: list[Work] = []
        self._newest = 0.0
        self._released: dict[int, Segment] = {}
        self._tells_released = False
        self._stuck_since: float | None = None
        self._warn_at = 0.0
        self._broken: str = ""
        self._progress = ProgressThread(self._work_in_background, GRACE_SECONDS) if threads else None

    def set_observer(self, observer: Observer | None) -> None:
        """Tell an observer what operations go through from now on, or nobody."""
        self.observer = self._execution.observer = observer

    @property
    def devices(self) -> DeviceTransport | None:
        """What carries arrays that are not in host memory."""
        return self._execution.devices

    @devices.setter
    def devices(self, devices: DeviceTransport | None) -> None:
        self._execution.devices = devices

    # submit

    def submit(self, work: Work) -> None:
        """Ask for an operation and do not wait. A name that is still pending here is a `ValueError`."""
        if self.observer is not None or work.signature.device != "cpu":
            self._enqueue((work,))
        else:
            # The same without what most operations do not need: many small ones may follow each other.
            if self._broken:
                raise HorovodInternalError(self._broken)
            if work.name in self._queue:
                raise _pending_already(work)
            work.error, work.done, work.since = None, False, self._clock()
            self._newest = work.since
            self._queue[work.name] = work
        if self._progress is not None:
            self._progress.wake()

    def submit_all(self, works: Sequence[Work]) -> None:
        """Ask for several at once: the ranks see all of them or none. Errors as for `submit`, before any."""
        self._enqueue(works)
        if self._progress is not None:
            self._progress.wake()

    def run(self, work: Work) -> None:
        """Ask for an operation and wait until it is done; raises what went wrong.

        The time that gradients take is kept account of.
        """
        signature = work.signature
        gradients = signature.kind == "gradients"
        if gradients:
            before = self._clock()
        busy = self._broken or self._queue or self.observer is not None or self._tells_released
        if busy or signature.device != "cpu" or not self._lock.acquire(blocking=False):
            if gradients:
                self._wait_for_gradients((), [work])
            else:
                self._enqueue((work,))
                self.wait(work)
            return
        try:
            work.error = None
            # A rank that did not lay its data out before would meet the others again; gradients lie there.
            staged = not gradients and self.transport.stage(work)
            self._peer_wait.subject = work
            if self._barrier.agree(work.digest + staged & MASK):
                if gradients:
                    met = self._clock()
                    self.waiting_seconds += met - before
                    self._execution.execute(work, staged=False)
                    self.exchange_seconds += self._clock() - met
                else:
                    self._execution.execute(work, staged=staged)
                work.done = True
                return
            if gradients:
                self.waiting_seconds += self._clock() - before
            work.done = False
            work.since = self._clock()
            self._queue[work.name] = work
            self._carry_out(self._negotiate([work], blocked=True))
        except BaseException as error:
            raised = self._failed(error)
            raise raised from raised.__cause__
        finally:
            self._lock.release()
        self.wait(work)

    def wait(self, work: Work) -> None:
        """Work on the queue until this operation is done; raises what went wrong with it."""
        if not work.done:
            self._waiters.append(work)
            try:
                while not work.done:
                    with self._lock:
                        if not work.done and self._queue.get(work.name) is not work:
                            raise HorovodInternalError(f"{work} was not asked for")
                        if not work.done:
                            self._round(blocked=True)
            finally:
                self._waiters.pop()
        if work.error is not None:
            raise work.error
        if work.signature.device != "cpu":
            self._execution.devices_for(work).delivered(work)

    def join(self, serial: int) -> tuple[int, int]:
        """Take part in the others' reductions with zeros until all ranks join.

        Return who was the last, and the largest ``serial`` of all ranks: those that joined early have counted
        fewer operations than the others, and are to go on as these do.
        """
        work = Work(_JOIN_CALL, _JOIN_DIGEST, name=None, serial=serial, array=None, out=None)
        self._enqueue((work,))
        self.wait(work)
        last, counted = work.out
        return last, counted

    def register(self, count: int, dtype: str, device: str = "cpu") -> Region:
        """Make memory in which gradients can be reduced in place, in turn with the operations. Collective."""
        if device != "cpu":
            if self.devices is None:
                raise HorovodInternalError(f"arrays on {device} cannot be carried here")
            return self.devices.register(count, dtype, device)
        # What somebody still looked at when it was released may be free by now.
        self._tells_released = bool(self._released)
        signature = Signature(kind="register", dtype=dtype, shape=(count,))
        work = Work(signature, signature_digest(signature), name=None, serial=0, array=None, out=None)
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
        if isinstance(region, SharedRegion) and isinstance(self.transport, Registering):
            self._released[region.segment.number] = region.segment
            self._tells_released = True

    def adopt(self, numbers: Sequence[int]) -> None:
        """Have the transport go by another table (see `Tunable`), in turn with the operations. Collective."""
        signature = Signature(kind="algorithm_table", shape=tuple(numbers))
        self.run(Work(signature, signature_digest(signature), name=None, serial=0, array=None, out=None))

    def cut(self, region: Region, start: int, count: int) -> Region:
        """Return a part of a registered region as a region of its own; nothing is allocated or copied."""
        if region.device != "cpu" and self.devices is not None:
            return self.devices.cut(region, start, count)
        return self.transport.cut(region, start, count)

    def register_gradients(self, work: Work) -> None:
        """Remember a ``gradients`` work, so that this rank can take part in it when it has joined."""
        self._execution.gradients[work.name] = work

    def forget_gradients(self, work: Work) -> None:
        """Forget what `register_gradients` remembered, if it is still that."""
        if self._execution.gradients.get(work.name) is work:
            del self._execution.gradients[work.name]

    def finish(self, under_way: list[Work], rest: list[Work]) -> None:
        """Do ``gradients`` works of which some were submitted before; the time is what the script waits."""
        self._wait_for_gradients(under_way, rest)

    def _wait_for_gradients(self, under_way: Sequence[Work], rest: Sequence[Work]) -> None:
        """Submit the rest, wait for all; keep exchange apart from what other ranks took to arrive."""
        self._stood, self._waits_since = 0.0, self._clock()
        began = self._waits_since
        try:
            for work in rest:
                self.submit(work)
            for work in (*under_way, *rest):
                self.wait(work)
        finally:
            self._waits_since = None
            waited = self._clock() - began
            stood = min(self._stood, waited)
            self.waiting_seconds += stood
            self.exchange_seconds += waited - stood

    def _agree(self, digest: int) -> bool:
        """Meet the other ranks for what is in the queue; note how long the script stood still for that."""
        began = self._clock()
        agreed = self._barrier.agree(digest)
        since = self._waits_since
        if since is not None:
            self._stood += max(0.0, self._clock() - max(began, since))
        return agreed

    def _enqueue(self, works: Sequence[Work]) -> None:
        if self._broken:
            raise HorovodInternalError(self._broken)
        now = self._newest = self._clock()
        for work in works:
            if work.name in self._queue:
                raise _pending_already(work)
            work.error, work.done, work.since = None, False, now
            if work.signature.device != "cpu":
                self._execution.devices_for(work).asked(work)
            if self.observer is not None:
                self.observer.submitted(work)
        if len(works) == 1:
            self._queue[works[0].name] = works[0]
        else:
            self._queue.update([(work.name, work) for work in works])

    # negotiate

    def _round(self, *, blocked: bool) -> None:
        """Meet the other ranks once and do what all have asked for. The lock is held."""
        asked = self._queue.copy()
        if self._broken:
            self._break(self._broken)
            return
        if not asked:
            return
        pending = list(asked.values())
        first = pending[0]
        try:
            staged = len(pending) == 1 and first.signature.device == "cpu" and self.transport.stage(first)
            self._peer_wait.subject = first if len(pending) == 1 else Several(pending)
            if self.observer is not None:
                self.observer.cycle()
                self.observer.negotiating(first)
            digest = sum(map(_DIGEST, pending)) + staged & MASK
            if self._tells_released:
                # Another change on each rank: they exchange lists also if all have released something.
                digest = digest + (self.ranks.rank + 1) * NEWS & MASK
            # Who joined last is not in the digests.
            if self._agree(digest) and JOIN not in asked:
                # Nor is the order, so the ranks take one that they can all tell.
                pending.sort(key=_ORDER)
                self._stuck_since = None
                self._execution.carry_out(pending, staged=staged)
            else:
                self._carry_out(self._negotiate(pending, blocked=blocked))
        except BaseException as error:
            raised = self._failed(error)
            raise raised from raised.__cause__

    def _negotiate(self, pending: list[Work], *, blocked: bool) -> Decision:
        """Exchange lists with all ranks; every rank gets the same decision."""
        now = self._clock()
        joins = [work for work in pending if work.name == JOIN]
        mine = Pending(
            entries=tuple((work.name, work.signature) for work in pending),
            ages=tuple(round(now - work.since, 6) for work in pending),
            blocked=blocked,
            stuck_seconds=now - self._stuck_since if self._stuck_since is not None else 0.0,
            offers=self._execution.offers() if joins else (),
            counted=joins[0].serial if joins else 0,
            unused=self._unused(),
        )
        everybody = [decode(message) for message in self._barrier.exchange(encode(mine))]
        return decide(everybody, limits=self._limits)

    def _unused(self) -> tuple[int, ...]:
        """Return the segments that this rank needs no more."""
        self._tells_released = False
        if not self._released or not isinstance(self.transport, Registering):
            return ()
        return tuple(self.transport.registered.unused(list(self._released.copy().values())))

    def _give_back(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            segment = self._released.pop(number)
            if isinstance(self.transport, Registering):
                self.transport.registered.give_back(segment)

    def _carry_out(self, decision: Decision) -> None:
        if decision.shutdown:
            raise known_to_peers(decision.shutdown)
        self._give_back(decision.unused)
        if decision.stalled:
            self._tell_stalls(decision)
        for name, text in decision.mismatched.items():
            if name in self._queue:
                self._execution.finish(self._queue[name], HorovodInternalError(text))
        if decision.last_joined is not None:
            self._queue[JOIN].out = (decision.last_joined, decision.counted)
        self._execution.carry_out_ready(decision)
        if decision.deadlocked:
            for work in list(self._queue.values()):
                self._execution.finish(work, HorovodInternalError(decision.deadlocked))
        if decision.ready or decision.mismatched or decision.deadlocked:
            self._stuck_since = None
            return
        if self._stuck_since is None:
            self._stuck_since = self._clock()
        else:
            stuck = self._clock() - self._stuck_since
            time.sleep(min(max(stuck / 10, PAUSE_SECONDS), LONGEST_PAUSE_SECONDS))

    def _tell_stalls(self, decision: Decision) -> None:
        now = self._clock()
        if now >= self._warn_at and self.ranks.rank == 0:
            self._warn_at = now + self._limits.warn
            texts = list(decision.stalled.values())
            more = f", and {len(texts) - 4} more" if len(texts) > 4 else ""
            print(f"ringleader: {'; '.join(texts[:4])}{more}", file=sys.stderr, flush=True)  # noqa: T201

    # the other thread, and the end

    def _work_in_background(self) -> float:
        """Do one round if something is pending and nobody else is at it; return when to come again."""
        pending = list(self._queue.values())
        if not pending:
            return 0.0
        if self._waiters:
            return OUT_OF_THE_WAY_SECONDS
        now = self._clock()
        quiet = now - self._newest >= GRACE_SECONDS or now - pending[0].since >= LONGEST_GRACE_SECONDS
        if quiet and self._lock.acquire(blocking=False):
            try:
                self._round(blocked=False)
            except Exception:
                return 0.0  # whoever waits for one of these operations is told
            finally:
                self._lock.release()
        return GRACE_SECONDS if self._queue else 0.0

    def _failed(self, error: BaseException) -> BaseException:
        """End the engine, as ranks can no longer be in step, and tell the others; return what to raise."""
        text = f"{self._peer_wait.subject} failed: {type(error).__name__}: {error}"
        if is_transport_error(error) and not isinstance(error, HorovodInternalError):
            wrapped = HorovodInternalError(text)
            wrapped.__cause__ = error
            error = wrapped
        first = not self._broken
        self._break(str(error) if isinstance(error, HorovodInternalError) else text)
        if first and not getattr(error, "known_to_peers", False):
            self._announce_broken()
        return error

    def _break(self, why: str) -> None:
        """End everything that is pending with an error."""
        self._broken = why
        for work in list(self._queue.values()):
            self._execution.finish(work, HorovodInternalError(why))

    def forked(self, why: str) -> None:
        """Go on in a forked child, where only the thread that forked is left.

        With ``why`` not empty every operation from now on is an error of these words.
        """
        self._lock = threading.Lock()
        if self._progress is not None:
            self._progress = ProgressThread(self._work_in_background, GRACE_SECONDS)
        self._waiters.clear()
        if why:
            self._broken = why

    def close(self, *, why: str) -> bool:
        """End what is pending with an error and stop the other thread.

        Return False where something of MPI's is still under way, so that nothing which the ranks own
        together can be given back.
        """
        idle = self._progress is None or self._progress.stop(STOP_SECONDS)
        if not idle or not self._lock.acquire(timeout=STOP_SECONDS):
            self._peer_wait.cancelled = why
            if not self._lock.acquire(timeout=10 * STOP_SECONDS):
                return False
        try:
            self._break(self._broken or why)
        finally:
            self._lock.release()
        self._execution.close()
        return not self._peer_wait.abandoned


def _pending_already(work: Work) -> ValueError:
    return ValueError(
        f"Requested to {work.signature.kind} '{work.name}' while an operation of that name is still pending "
        "on this rank. Wait for it, or give this one another name."
    )
