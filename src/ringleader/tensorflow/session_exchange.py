"""The thread that exchanges what the operations of sessions hand over, one for each engine.

    executor's threads → `SessionExchange.add` → (`arrival_buckets` decide when) → engine → `Request.wait`

An operation waits on its own; only this thread meets the other ranks for them.
"""

from __future__ import annotations

import itertools
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ringleader.adapters.arrival_buckets import BucketPlanner, Position
from ringleader.adapters.object_exchange import sum_work
from ringleader.adapters.step_metrics import session_metrics
from ringleader.engine.engine import Engine
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.operations import Work
from ringleader.engine.process_lifecycle import PROCESS

QUIET_SECONDS = 10.0
"""A rank that no operation has come to for so long counts as standing still: where all ranks do and ask for
different operations, that is an error and not a wait."""


_TICKETS = itertools.count()


class Request:
    """What one operation of a session handed over: works that are done together, and their results."""

    __slots__ = ("_pending", "_results", "engine", "error", "name", "nbytes", "outcome", "ticket", "works")

    def __init__(
        self,
        name: str,
        nbytes: int,
        engine: Engine,
        works: list[Work],
        results: Callable[[], Sequence[Any]],
    ) -> None:
        """``nbytes`` are the input's; ``results`` are looked up when all works are done."""
        self.name = name
        self.engine = engine
        self.ticket = next(_TICKETS)
        """A number of its own."""
        self.nbytes = nbytes
        self.works = works
        self.error: BaseException | None = None
        self.outcome: Sequence[Any] = ()
        self._results = results
        # Held until the results are there: an Event would cost ten times as much, for each gradient.
        self._pending = threading.Lock()
        self._pending.acquire()

    def finish(self, error: BaseException | None = None) -> None:
        """Let who waits go on: with the results, or the error of a work or this one."""
        self.error = error or next((work.error for work in self.works if work.error is not None), None)
        if self.error is None:
            try:
                self.outcome = self._results()
            except Exception as failed:
                self.error = failed
        self.works = []  # they hold the tensors' memory
        if self._pending.locked():
            self._pending.release()

    def wait(self) -> Sequence[Any]:
        """Return the results when they are there; `HorovodInternalError` where there are none.

        Of that class whatever went wrong: TensorFlow keeps nothing but its name in the message.
        """
        with self._pending:
            pass
        if self.error is not None:
            raise HorovodInternalError(str(self.error)) from self.error
        return self.outcome


class SessionExchange:
    """Carries the requests of one engine. Its thread begins with the first one."""

    def __init__(self, engine: Engine) -> None:
        """Begin without a request. Steps, as far as they can be known here, are those of all ranks."""
        self._engine = engine
        self._metrics = session_metrics() if engine is PROCESS.get().engine else None
        self._cycle = 1
        self._planner = BucketPlanner(alone=engine.ranks.size == 1)
        self._lock = threading.Lock()
        """Held for the planner and what waits."""
        self._waiting: dict[str, Request] = {}
        self._under_way: list[Request] = []
        """Requests that the engine has; of the thread alone."""
        self._orders: dict[str, tuple[Work, array[int]]] = {}
        """By name of the operation: rank 0's order, which is told along with it."""
        self._latest = time.monotonic()
        self._wakeup = threading.Event()
        self._napping = False
        self._ended = ""
        self._thread: threading.Thread | None = None

    def add(self, request: Request) -> None:
        """Take a request and return at once. One of the same name that waits is given up for it."""
        with self._lock:
            if self._ended:
                raise HorovodInternalError(self._ended)
            old = self._waiting.pop(request.name, None)
            self._waiting[request.name] = request
            self._latest = time.monotonic()
            ripe = self._planner.arrived(request.name, request.nbytes, self._latest)
            if self._thread is None or not self._thread.is_alive():  # none, or the parent's of this process
                self._wakeup = threading.Event()
                self._thread = threading.Thread(
                    target=self._serve, name="ringleader-session-exchange", daemon=True
                )
                self._thread.start()
            elif ripe or not self._napping:
                self._wakeup.set()
        if old is not None:
            old.finish(HorovodInternalError(f"'{request.name}' was given up: it was asked for again"))

    def close(self, why: str = "Horovod has been shut down.") -> None:
        """Take no more requests, end those that wait with an error; the engine ends what it has."""
        with self._lock:
            self._ended = why
            waiting, self._waiting = list(self._waiting.values()), {}
            self._wakeup.set()
        for request in waiting:
            request.finish(HorovodInternalError(why))

    def shut_down(self) -> None:
        """End with the session of ranks."""
        _EXCHANGES.pop(self._engine, None)
        self.close()

    def _serve(self) -> None:
        try:
            while self._under_way or not self._ended:
                for batch in self._due():
                    self._submit(batch)
                if self._under_way:
                    self._advance()
        except BaseException as error:
            self.close(f"the exchange of sessions ended: {type(error).__name__}: {error}")
            for request in self._under_way:
                request.finish(HorovodInternalError(self._ended))
            raise

    def _due(self) -> list[list[Request]]:
        """Return what is to be sent now; wait for something to do if there is nothing else to do."""
        if not self._under_way:
            with self._lock:
                look = self._planner.next_look()
                self._napping = look is not None
            self._wakeup.wait(None if look is None else max(look - time.monotonic(), 0.0))
        self._wakeup.clear()
        with self._lock:
            self._napping = False
            batches = self._planner.due(time.monotonic())
            taken = [[self._waiting.pop(name, None) for name in batch] for batch in batches]
        return [[request for request in batch if request is not None] for batch in taken]

    def _submit(self, batch: Iterable[Request]) -> None:
        works: list[Work] = []
        accepted: list[Request] = []
        pending = self._engine.queue.works
        for request in batch:
            taken = next((work for work in request.works if work.name in pending), None)
            if taken is not None:
                text = f"'{request.name}' is still under way for an earlier session.run that was broken off"
                request.finish(HorovodInternalError(text))
                continue
            accepted.append(request)
            works += request.works
            works += self._order(request)
        try:
            if works:
                self._engine.submit_all(works)
        except Exception as error:
            for request in accepted:
                request.finish(error)
        else:
            self._under_way += accepted

    def _order(self, request: Request) -> list[Work]:
        """Return the work that tells rank 0's order along with a request, where that is due."""
        with self._lock:
            position = self._planner.agreement_due(request.name)
        if position is None:
            return []
        mine = (position.cycle, position.index, position.nbytes)
        numbers = array("q", mine if self._engine.ranks.rank == 0 else (0, 0, 0))
        work = sum_work(self._engine, numbers, f"{request.name}.order")
        if work.name in self._engine.queue.works:
            return []
        self._orders[request.name] = (work, numbers)
        return [work]

    def _advance(self) -> None:
        """Meet the other ranks once, and let those go on whose works are done."""
        first = next((work for request in self._under_way for work in request.works if not work.done), None)
        if first is not None:
            try:
                with self._engine.times.waiting():
                    quiet = time.monotonic() - self._latest > QUIET_SECONDS
                    self._engine.advance(first, blocked=quiet)
            except Exception as error:
                for request in self._under_way:
                    request.finish(error)
                self._under_way = []
                return
        left: list[Request] = []
        for request in self._under_way:
            if not all(work.done for work in request.works):
                left.append(request)
                continue
            if request.name in self._orders and self._orders[request.name][0].done:
                work, (cycle, index, nbytes) = self._orders.pop(request.name)
                if work.error is None:
                    with self._lock:
                        place = Position(cycle=cycle, index=index, nbytes=nbytes)
                        self._planner.agree(request.name, place)
            request.finish()
        self._under_way = left
        if self._planner.cycle_number != self._cycle:
            self._cycle = self._planner.cycle_number
            if self._metrics is not None:
                self._metrics.step()


_EXCHANGES: dict[Engine, SessionExchange] = {}
"""A process has one session of ranks, whose engines are shared by all sessions and graphs."""
_MAKING = threading.Lock()


def exchange_of(engine: Engine) -> SessionExchange:
    """Return what carries the requests for an engine."""
    found = _EXCHANGES.get(engine)
    if found is not None:
        return found
    with _MAKING:
        if engine not in _EXCHANGES:
            _EXCHANGES[engine] = SessionExchange(engine)
            PROCESS.get().at_shutdown.add(_EXCHANGES[engine].shut_down)
        return _EXCHANGES[engine]
