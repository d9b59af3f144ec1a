"""One round: ranks tell each other what they have pending, agree on what all can do, and do it.

    barrier with digest → (where digests differ: lists → `decide`) → execution

Where the digests are equal everything can be done. Otherwise the ranks exchange their lists and `decide` what
all of them have asked for, whatever the order.
"""

from __future__ import annotations

import sys
import time

from ringleader.engine.exceptions import (
    HorovodInternalError,
    MismatchError,
    NoteMismatchError,
    is_transport_error,
    known_to_peers,
)
from ringleader.engine.execution import (
    EngineParts,
    ExchangeTimes,
    Execution,
    ReleasedMemory,
    Several,
)
from ringleader.engine.fusion_buffer import RoundPlans
from ringleader.engine.negotiation import Decision, decide
from ringleader.engine.operations import JOIN, MASK, Work
from ringleader.engine.pending_operations import Pending, decode, encode
from ringleader.engine.submission_queue import SubmissionQueue
from ringleader.engine.timeline.observer import Stage

PAUSE_SECONDS = 0.001
LONGEST_PAUSE_SECONDS = 0.01
"""Between two rounds that could do nothing: a tenth of the time since one could, within these limits."""
NEWS = 0xC2B2AE3D27D4EB4F
"""Added to the digest of a rank that has something to tell beside its operations."""


class NegotiationRound:
    """Rounds on the queue of one engine. The queue's lock is held in all of them."""

    def __init__(
        self,
        parts: EngineParts,
        queue: SubmissionQueue,
        execution: Execution,
        *,
        released: ReleasedMemory,
        times: ExchangeTimes,
    ) -> None:
        """Take the parts of `ringleader.engine.engine.Engine`."""
        self._rank, self._limits, self._clock = parts.ranks.rank, parts.limits, parts.clock
        self._barrier, self._transport, self._peer_wait = parts.barrier, parts.transport, parts.peer_wait
        self._announce_broken = parts.announce_broken
        self._queue, self._execution = queue, execution
        self._released, self._times = released, times
        self._plans = RoundPlans()
        self._stuck_since: float | None = None
        self._joined_for = 0
        self._warn_at = 0.0

    def run(self, *, blocked: bool) -> None:
        """Meet the other ranks once and do what all have submitted; raises what ends the engine."""
        queue = self._queue
        if queue.broken:
            queue.break_off(queue.broken)
            return
        pending = list(queue.works.values())
        if not pending:
            return
        plan, first = self._plans.of(pending), pending[0]
        try:
            alone = len(pending) == 1 and first.signature.device == "cpu"
            staged = self._transport.stage(first) if alone else 0
            first_staged = 0 if alone else self._execution.stage_first(plan)
            if first_staged:
                self._barrier.laying_out(first_staged)
            self._peer_wait.subject = first if len(pending) == 1 else Several(pending)
            if queue.observer is not None:
                queue.observer.mark(Stage.CYCLE)
                queue.observer.note(Stage.NEGOTIATING, first)
            if self._agree(plan.digest + staged & MASK) and not plan.joins:
                self._stuck_since = None
                if first_staged:
                    staged = self._barrier.laid_out()
                self._execution.carry_out_plan(plan, staged=staged)
            else:
                self.negotiate(pending, blocked=blocked)
        except BaseException as error:
            raised = self.failed(error)
            raise raised from raised.__cause__

    def _agree(self, digest: int) -> bool:
        """Meet the other ranks for what is in the queue; note how long the script stood still for that."""
        if self._released.to_tell:
            # Another change on each rank: they exchange lists also if all have released something.
            digest = digest + (self._rank + 1) * NEWS & MASK
        began = self._clock()
        agreed = self._barrier.agree(digest)
        self._times.met(began)
        return agreed

    def negotiate(self, pending: list[Work], *, blocked: bool) -> None:
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
        queue = self._queue
        self._released.give_back(decision.unused)
        if decision.stalled:
            self._warn_of_stalls(list(decision.stalled.values()))
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

    def _warn_of_stalls(self, texts: list[str]) -> None:
        now = self._clock()
        if now >= self._warn_at and self._rank == 0:
            self._warn_at = now + self._limits.warn
            more = f", and {len(texts) - 4} more" if len(texts) > 4 else ""
            print(f"ringleader: {'; '.join(texts[:4])}{more}", file=sys.stderr, flush=True)  # noqa: T201

    def failed(self, error: BaseException) -> BaseException:
        """End the engine, as ranks can no longer be in step, and tell the others; return what to raise."""
        text = f"{self._peer_wait.subject} failed: {type(error).__name__}: {error}"
        if is_transport_error(error) and not isinstance(error, HorovodInternalError):
            wrapped = HorovodInternalError(text)
            wrapped.__cause__ = error
            error = wrapped
        first = not self._queue.broken
        self._queue.break_off(str(error) if isinstance(error, HorovodInternalError) else text)
        if first and not getattr(error, "known_to_peers", False):
            self._announce_broken()
        return error
