"""Operations that are done at once, while the script waits: without the queue, as nothing else is pending.

    lay out → barrier with digest → transport

Where the ranks find that they ask for different things the operation becomes pending, as any other
(`negotiation_round`). What an operation costs besides the exchange counts here: a script does these one
after the other.
"""

from __future__ import annotations

from collections.abc import Callable

from ringleader.collectives.digest_barrier import DigestBarrier
from ringleader.collectives.exchange_times import ExchangeTimes
from ringleader.collectives.execution import Execution
from ringleader.collectives.kernels import Array
from ringleader.collectives.negotiation_round import NegotiationRound
from ringleader.collectives.operations import GRADIENTS, MASK, RepeatedWork, Work
from ringleader.collectives.peer_wait import PeerWait
from ringleader.collectives.released_memory import ReleasedMemory
from ringleader.collectives.submission_queue import SubmissionQueue
from ringleader.collectives.transports.registered_memory import PreparedReduction
from ringleader.collectives.transports.transport import Transport


class ImmediateOperations:
    """What one engine does at once. See `ringleader.collectives.engine.Engine` for the parts."""

    def __init__(
        self,
        *,
        queue: SubmissionQueue,
        negotiation: NegotiationRound,
        execution: Execution,
        barrier: DigestBarrier,
        transport: Transport,
        peer_wait: PeerWait,
        released: ReleasedMemory,
        times: ExchangeTimes,
        clock: Callable[[], float],
    ) -> None:
        """Take the parts."""
        self._queue = queue
        self._negotiation = negotiation
        self._execution = execution
        self._barrier = barrier
        self._transport = transport
        self._peer_wait = peer_wait
        self._released = released
        self._times = times
        self._clock = clock

    def run(self, work: Work) -> None:
        """Ask for an operation and wait until it is done; raises what went wrong.

        The time that gradients take is kept account of.
        """
        signature, queue = work.signature, self._queue
        gradients = signature.kind in GRADIENTS
        busy = queue.broken or queue.works or queue.observer is not None or self._released.to_tell
        if busy or signature.device != "cpu" or not queue.lock.acquire(False):
            if gradients:
                with self._times.waiting():
                    queue.run(work)
            else:
                queue.run(work)
            return
        try:
            self._peer_wait.subject = work
            if self._met_gradients(work) if gradients else self._met(work):
                work.done, work.error = True, None
                return
            self._negotiate(work)
        except BaseException as error:
            raised = self._negotiation.failed(error)
            raise raised from raised.__cause__
        finally:
            queue.lock.release()
        queue.wait(work)

    def run_again(self, again: RepeatedWork, serial: int, array: Array, prepared: PreparedReduction) -> bool:
        """Do a reduction in place of an array in host memory once more; raises what went wrong.

        ``prepared`` is what is kept for its memory. Return False, with nothing done, where something else is
        under way. What it costs besides the exchange counts: it is the most frequent operation.
        """
        queue = self._queue
        busy = queue.works or queue.broken or queue.observer is not None or self._released.to_tell
        if busy or not queue.lock.acquire(False):
            return False
        try:
            self._peer_wait.subject = again
            digest, stage = again.digest(serial), prepared.stage
            if stage is not None:
                stage()
                if self._barrier.agree(digest + prepared.laid_out & MASK):
                    prepared.reduce()
                    return True
                work = again.with_array(array, prepared.flat)
            else:
                work = again.with_array(array, prepared.flat)
                self._transport.prepare(work, prepared)
                if self._met(work):
                    return True
            self._negotiate(work)
        except BaseException as error:
            raised = self._negotiation.failed(error)
            raise raised from raised.__cause__
        finally:
            queue.lock.release()
        queue.wait(work)
        return True

    def _met(self, work: Work) -> bool:
        """Meet the other ranks for an operation and do it; False where they ask for something else."""
        # A rank that did not lay its data out before would meet the others again.
        staged = self._transport.stage(work)
        if not self._barrier.agree(work.digest + staged & MASK):
            return False
        self._execution.execute(work, staged=staged)
        return True

    def _negotiate(self, work: Work) -> None:
        """Find out what the other ranks ask for, with this operation pending here."""
        work.error, work.done, work.since = None, False, self._clock()
        self._queue.works[work.name] = work
        self._negotiation.negotiate([work], blocked=True)

    def _met_gradients(self, work: Work) -> bool:
        """Meet the other ranks for gradients and exchange them; False where they ask for something else."""
        before = self._clock()
        agreed = self._barrier.agree(work.digest)
        met = self._clock()
        self._times.waiting_seconds += met - before
        if agreed:
            self._execution.execute(work, staged=0)
            self._times.exchange_seconds += self._clock() - met
        return agreed
