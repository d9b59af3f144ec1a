"""The engine: operations that a script asks for, agreed between ranks in rounds, and carried out.

    submit → `submission_queue` → barrier with digest → (digests differ: lists → `decide`) → `execution`
    run → lay out → barrier with digest → transport

An operation is put into a queue (`Engine.submit`) or done at once (`Engine.run`), while the script waits and
nothing else is pending. Where the ranks find that they ask for different things, what one wants at once
becomes pending, as any other. What an operation costs besides the exchange counts there: a script does these
one after the other.

In a round each rank brings a digest of what it has pending. Where the digests are equal everything can be
done. Otherwise the ranks exchange their lists, and `negotiation.decide` says what all of them have asked for,
whatever the order.

An engine is of one group of ranks. Groups have their own engines, so that none waits for another.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from ringleader.engine.exceptions import (
    HorovodInternalError,
    MismatchError,
    NoteMismatchError,
    is_transport_error,
    known_to_peers,
)
from ringleader.engine.execution import EngineParts, ExchangeTimes, Execution, ReleasedMemory, Several
from ringleader.engine.fusion_buffer import RoundPlans
from ringleader.engine.negotiation import Decision, Pending, decide, decode, encode
from ringleader.engine.operations import (
    GRADIENTS,
    JOIN,
    MASK,
    Signature,
    Work,
    signature_digest,
)
from ringleader.engine.reduction_kernels import Array
from ringleader.engine.submission_queue import SubmissionQueue, still_pending
from ringleader.engine.timeline import Stage, activity_of
from ringleader.engine.transports.transport import Bound, Region

STOP_SECONDS = 0.5
"""At the end of the engine what is under way gets this long."""
PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.01
"""Between two rounds that could do nothing: a tenth of the time since one could, within these limits."""
NEWS = 0xC2B2AE3D27D4EB4F
"""Added to the digest of a rank that has something to tell beside its operations."""


class Engine:
    """One life of the engine of a group: from ``init`` to ``shutdown``."""

    def __init__(self, parts: EngineParts) -> None:
        """Take the parts."""
        self.ranks, self.transport = parts.ranks, parts.transport
        self.kernels, self.threads = parts.kernels, parts.threads
        self._barrier, self._peer_wait, self._clock = parts.barrier, parts.peer_wait, parts.clock
        self._limits, self._announce_broken = parts.limits, parts.announce_broken
        self.times = ExchangeTimes(parts.clock)
        """What exchanges of gradients took so far."""
        self._released = ReleasedMemory(parts.transport)
        self.queue = queue = SubmissionQueue(
            self._run_round, devices=parts.devices, clock=parts.clock, threads=parts.threads
        )
        """What the script asked for, who observes it, and what carries arrays on devices."""
        self._execution, self._plans = Execution(parts, queue), RoundPlans()
        self._stuck_since: float | None = None
        self._joined_for = 0
        self._warn_at = 0.0
        # Methods of the queue, so that they cost no call more.
        self.submit, self.submit_again, self.submit_all = queue.submit, queue.submit_again, queue.submit_all
        self.wait, self.advance = queue.wait, queue.advance

    def run(self, work: Work) -> None:
        """Ask for an operation and wait until it is done; raises what went wrong.

        The time that gradients take is kept account of.
        """
        signature, queue = work.signature, self.queue
        gradients = signature.kind in GRADIENTS
        if self.is_busy() or signature.device != "cpu" or not queue.lock.acquire(False):
            if gradients:
                with self.times.waiting():
                    queue.run(work)
            else:
                queue.run(work)
            return
        try:
            self._peer_wait.subject = work
            if self._met_gradients(work) if gradients else self._met(work):
                work.done, work.error = True, None
                return
            self._ask_others(work)
        except BaseException as error:
            raised = self._failed(error)
            raise raised from raised.__cause__
        finally:
            queue.lock.release()
        queue.wait(work)

    def bind(self, signature: Signature, source: Array, target: Array, address: int) -> Bound | None:
        """Return what reduces a flat array into another one, for `run_again`; None: nothing is kept for that.

        ``address`` is where the array lies if it is reduced in place, else 0.
        """
        transport = self.transport
        reduction = transport.reductions.get(id(signature)) or transport.reduction_of(signature)
        return None if reduction is None else reduction.bind(source, target, address)

    def is_busy(self) -> bool:
        """Return whether `run_again` would do nothing, as far as is known without the queue's lock."""
        queue = self.queue
        return bool(queue.works or queue.broken or queue.observer is not None or self._released.to_tell)

    def run_again(
        self,
        kept: Work,
        serial: int,
        array: Array,
        out: Array,
        bound: Bound | None,
        bind: Callable[[Array, Array], Bound | None] | None,
    ) -> bool:
        """Do a reduction of an array in host memory once more; raises what went wrong.

        ``kept`` describes it, without arrays; ``bound`` is what `bind` returned for their memory, and the
        argument ``bind`` calls that where nothing is known. Return False, with nothing done, where something
        else is under way. What it costs besides the exchange counts: it is the most frequent operation.
        """
        queue = self.queue
        busy = queue.works or queue.broken or queue.observer is not None or self._released.to_tell
        if busy or not queue.lock.acquire(False):
            return False
        try:
            self._peer_wait.subject = kept
            digest = kept.again(serial)
            if bound is None and bind is not None:
                if queue.broken:  # meanwhile, and the transport may be closed
                    return False
                bound = bind(array, out)
            if bound is not None:
                stage, reduce = bound
                staged = stage()
                if self._barrier.agree(digest + staged & MASK):
                    reduce(staged)
                    return True
                work = kept.with_arrays(array, out)
            else:
                work = kept.with_arrays(array, out)
                if self._met(work):
                    return True
            self._ask_others(work)
        except BaseException as error:
            raised = self._failed(error)
            raise raised from raised.__cause__
        finally:
            queue.lock.release()
        queue.wait(work)
        return True

    def _met(self, work: Work) -> bool:
        """Meet the other ranks for an operation and do it; False where they ask for something else."""
        # A rank that did not lay its data out before would synchronize with the others again.
        staged = self.transport.stage(work)
        if not self._barrier.agree(work.digest + staged & MASK):
            return False
        self._execution.execute(work, staged=staged)
        return True

    def _met_gradients(self, work: Work) -> bool:
        """Meet the other ranks for gradients and exchange them; False where they ask for something else."""
        before = self._clock()
        agreed = self._barrier.agree(work.digest)
        met = self._clock()
        self.times.waiting_seconds += met - before
        if agreed:
            self._execution.execute(work, staged=0)
            self.times.exchange_seconds += self._clock() - met
        return agreed

    def _ask_others(self, work: Work) -> None:
        """Find out what the other ranks ask for, with this operation pending here."""
        queue = self.queue
        work.error, work.done, work.since = None, False, self._clock()
        if queue.works.setdefault(work.name, work) is work:
            self._negotiate([work], blocked=True)
            return
        # Another thread has asked under this name while this one synchronized with the other ranks, who now
        # send lists.
        queue.finish(work, still_pending(work))
        self._negotiate(list(queue.works.values()), blocked=False)

    # rounds on the queue, whose lock is held in all of them

    def _run_round(self, blocked: bool) -> None:
        """Meet the other ranks once and do what all have submitted; raises what ends the engine."""
        queue = self.queue
        if queue.broken:
            queue.break_off(queue.broken)
            return
        pending = list(queue.works.values())
        if not pending:
            return
        plan, first = self._plans.of(pending), pending[0]
        try:
            alone = len(pending) == 1 and first.signature.device == "cpu"
            staged = self.transport.stage(first) if alone else 0
            first_staged = 0 if alone else self._execution.stage_first(plan)
            if first_staged:
                self._barrier.laying_out(first_staged)
            self._peer_wait.subject = first if len(pending) == 1 else Several(pending)
            if queue.observer is not None:
                queue.observer.mark(Stage.CYCLE)
                queue.observer.note(Stage.NEGOTIATING, first)
            digest = plan.digest + staged
            if self._released.to_tell:
                # Another change on each rank: they exchange lists also if all have released something.
                digest += (self.ranks.rank + 1) * NEWS
            began = self._clock()
            agreed = self._barrier.agree(digest & MASK)
            self.times.met(began)
            if agreed and not plan.joins:
                self._stuck_since = None
                if first_staged:
                    staged = self._barrier.laid_out()
                self._execution.carry_out_plan(plan, staged=staged)
            else:
                self._negotiate(pending, blocked=blocked)
        except BaseException as error:
            raised = self._failed(error)
            raise raised from raised.__cause__

    def _negotiate(self, pending: list[Work], *, blocked: bool) -> None:
        """Exchange lists with all ranks, which come to the same decision, and do what can be done."""
        now = self._clock()
        joins = [work for work in pending if work.name == JOIN]
        self._joined_for = self._joined_for + 1 if joins else 0
        # Whoever asks for one more operation does not stand still: another thread of a script is at work.
        since = max(
            now if self._stuck_since is None else self._stuck_since, *(work.since for work in pending)
        )
        mine = Pending(
            entries=tuple((work.name, work.signature) for work in pending),
            ages=tuple(round(now - work.since, 6) for work in pending),
            blocked=blocked,
            stuck_seconds=max(now - since, 0.0),
            offers=self._execution.offers() if joins else (),
            counted=joins[0].serial if joins else 0,
            joined_for=self._joined_for,
            unused=self._released.unused(),
        )
        everybody = [decode(message) for message in self._barrier.exchange(encode(mine))]
        self._carry_out(decide(everybody, limits=self._limits))

    def _carry_out(self, decision: Decision) -> None:
        if decision.shutdown:
            raise known_to_peers(decision.shutdown)
        queue = self.queue
        self._released.give_back(decision.unused)
        if decision.stalled and self.ranks.rank == 0 and self._clock() >= self._warn_at:
            self._warn_at = self._clock() + self._limits.warn
            texts = list(decision.stalled.values())
            more = f", and {len(texts) - 4} more" if len(texts) > 4 else ""
            print(f"ringleader: {'; '.join(texts[:4])}{more}", file=sys.stderr, flush=True)  # noqa: T201
        for name, text in decision.mismatched.items():
            if name in queue.works:
                kind = NoteMismatchError if name in decision.only_notes_differ else MismatchError
                queue.finish(queue.works[name], kind(text))
        if decision.last_joined is not None:
            queue.works[JOIN].out = (decision.last_joined, decision.counted)
        self._execution.carry_out_ready(decision)
        if decision.deadlocked:
            for work in list(queue.works.values()):
                queue.finish(work, MismatchError(decision.deadlocked))
        if decision.ready or decision.mismatched or decision.deadlocked:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = self._clock()
        else:
            stuck = self._clock() - self._stuck_since
            time.sleep(min(max(stuck / 10, PAUSE_SECONDS), LONGEST_PAUSE_SECONDS))

    def _failed(self, error: BaseException) -> BaseException:
        """End the engine, as ranks can no longer agree, and tell the others; return what to raise."""
        text = f"{self._peer_wait.subject} failed: {type(error).__name__}: {error}"
        if is_transport_error(error) and not isinstance(error, HorovodInternalError):
            wrapped = HorovodInternalError(text)
            wrapped.__cause__ = error
            error = wrapped
        first = not self.queue.broken
        self.queue.break_off(str(error) if isinstance(error, HorovodInternalError) else text)
        if first and not getattr(error, "known_to_peers", False):
            self._announce_broken()
        return error

    # what is asked for besides

    @property
    def meetings(self) -> int:
        """Return how often this rank has come to meet the others for operations."""
        return self._barrier.meetings

    def join(self, serial: int) -> tuple[int, int]:
        """Take part in the others' reductions with zeros until all ranks join.

        Return who was the last, and the largest ``serial`` of all ranks: those that joined early have counted
        fewer operations than the others, and continue from there.
        """
        work = _control_work("join", serial=serial)
        self.queue.run(work)
        last, counted = work.out
        return last, counted

    def agree_on_sets(self, change: str) -> None:
        """Wait until all ranks ask for the same change of the process sets. Collective.

        Where a rank asks for one while others are in an operation, all ranks get a `MismatchError`.
        """
        self.run(_control_work("process_set", note=change))

    def register(self, count: int, dtype: str, device: str = "cpu") -> Region:
        """Make memory in which gradients are reduced in place, in order with the operations. Collective."""
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

        May be called at any time, also by a finalizer in the middle of anything else. The memory goes
        when all ranks have released it and no array of theirs is left over it: they tell each other
        with the next operation after a release, or the next `register`. Memory of this rank's own goes with
        its last array, as any does.
        """
        self._released.add(region)

    def meet(self) -> None:
        """Wait until all ranks have called this. Collective; nothing among independent ranks."""
        self.run(_control_work("barrier"))

    def cut(self, region: Region, start: int, count: int) -> Region:
        """Return a part of a registered region as a region; nothing is allocated or copied."""
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
        """Bring everybody's part of divided memory to all ranks, which synchronize afterwards. Collective."""
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
        self._plans.close()
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
