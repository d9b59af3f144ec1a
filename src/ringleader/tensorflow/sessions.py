"""Operations in the graph of a session, whose executor runs nodes in any order and on few threads.

    hand over (Python, returns at once) → `SessionExchange` (`arrival_buckets` decide when) → engine
                                                                    ...→ wait (`waiting_node`) → results

No thread of the session is blocked, so any number of operations may be under way, in another order on every
rank. Nodes are tied to nothing but their inputs: what a `session.run` does not need is not exchanged. An
operation waits on its own; only the exchange's thread, one for each engine, synchronizes with the other ranks
for them.

Waiting must not block a thread that computes. Stock TensorFlow has one kernel that calls Python elsewhere:
``IteratorGetNext``, which runs the functions of its dataset on a thread of the iterator's own. So what waits
is a function mapped over an endless dataset, on that very thread. The first step that asks an iterator makes
it: sessions of scripts that know nothing of it work. (A one-shot iterator would do so, too, but is of no use
for good where that very step is cancelled.)
"""

from __future__ import annotations

import itertools
import re
import threading
import time
import weakref
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy
import tensorflow as tf

from ringleader.adapters.arrival_buckets import BucketPlanner, Position
from ringleader.adapters.numpy_adapter import Array
from ringleader.adapters.object_exchange import sum_work
from ringleader.adapters.step_metrics import session_metrics
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.group_engine import Engine
from ringleader.engine.operations import Work
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.tensorflow.eager_tensors import argument_error

_NAMES: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
"""Names of the operations in each graph."""
ENDLESS = 1 << 62
_RENEWALS = "ringleader waiting nodes"
"""Collection of a graph: what makes the iterators of its waiting nodes anew."""
QUIET_SECONDS = 10.0
"""A rank that no operation has come to for this long counts as standing still: where all ranks do and ask for
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
        """Its own number."""
        self.nbytes = nbytes
        self.works = works
        self.error: BaseException | None = None
        self.outcome: Sequence[Any] = ()
        self._results = results
        # Held until the results are there: an Event would cost ten times as much, for each gradient.
        self._pending = threading.Lock()
        self._pending.acquire()

    def finish(self, error: BaseException | None = None) -> None:
        """Let who waits continue: with the results, or the error of a work or this one."""
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
        """By name of the operation: rank 0's order, which is sent along with it."""
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
        """Meet the other ranks once, and let those continue whose works are done."""
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


# nodes


class SessionOperation:
    """What the nodes of one operation call."""

    def __init__(self, name: str, make_request: Callable[..., Request]) -> None:
        """``make_request`` takes the arrays that are handed over."""
        self._name = name
        self._make_request = make_request
        self._lock = threading.Lock()
        self._unread: Request | None = None
        self._awaited: Request | None = None

    def hand_over(self, *arrays: Array) -> Array:
        """Submit the arrays, views of TensorFlow's memory, and return the number of the request.

        One that nobody waits for is left from a `session.run` that was broken off, and given up.
        """
        request = self._make_request(*arrays)
        with self._lock:
            if self._awaited is not None:
                raise ValueError(self._twice())
            self._unread = request
        exchange_of(request.engine).add(request)
        return numpy.asarray(request.ticket, numpy.int64)

    def wait(self) -> list[Array]:
        """Return the number of the request and its results when it is done."""
        with self._lock:
            request, self._unread = self._unread, None
            if request is None:
                raise ValueError(self._twice())
            self._awaited = request
        try:
            outcome = request.wait()
        finally:
            with self._lock:
                self._awaited = None
        return [numpy.asarray(request.ticket, numpy.int64), *outcome]

    def _twice(self) -> str:
        return (
            f"'{self._name}' is under way in two calls of session.run at a time. Ranks know an operation by "
            "its name: run one after the other, or build one operation for each."
        )


def in_session(
    name: str, operands: Sequence[Any], types: Sequence[tf.DType], make_request: Callable[..., Request]
) -> list[Any]:
    """Add an operation to the graph of a session, and return its outputs, whose shapes are unknown.

    ``make_request`` takes the values of the operands; what it returns has a result of each of the types.
    `ArgumentError` where the graph has an operation of that name.
    """
    graph = tf.compat.v1.get_default_graph()
    names = _NAMES.setdefault(graph, set())
    if name in names:
        raise argument_error(
            f"This graph has an operation '{name}' already. Ranks know an operation by its name: "
            "give one of them another name, or none."
        )
    names.add(name)
    nodes = SessionOperation(name, make_request)
    # Arrays are exchanged on the host, wherever the nodes around them are.
    scope = re.sub("[^A-Za-z0-9_./-]", "_", name).lstrip("_/-") or "operation"
    with tf.name_scope(f"{scope}/"), graph.colocate_with(None, ignore_existing=True), tf.device("/cpu:0"):
        ticket = tf.numpy_function(nodes.hand_over, operands, tf.int64, stateful=True)
        got, *outputs = waiting_node(nodes.wait, [tf.int64, *types], [ticket])
        # Two calls of session.run at a time could get each other's results.
        same = tf.raw_ops.Assert(condition=tf.equal(got, ticket), data=[nodes._twice()])
        with tf.control_dependencies([same]):
            return [tf.identity(output) for output in outputs]


# waiting


def waiting_node(wait: Callable[[], Any], types: Sequence[tf.DType], after: Sequence[Any]) -> list[Any]:
    """Return tensors of what ``wait`` returns each time, which is called after some other nodes are done.

    ``wait`` may block; it returns as many arrays as there are ``types``. Their shapes are unknown.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False

    def call(_number: Any) -> tuple[Any, ...]:
        return tuple(tf.numpy_function(wait, [], list(types), stateful=True))

    # The nodes of the dataset are not to wait for anything: they become a function, by themselves.
    with tf.control_dependencies(None):
        dataset = _mapped(tf.data.Dataset.range(ENDLESS), call, options).with_options(options)
        iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        name = iterator._iterator_resource.op.name + "_is_made"
        made = tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[], shared_name=name, name=name)

        def make() -> Any:
            variant = tf.data.experimental.to_variant(dataset)
            making = tf.raw_ops.MakeIterator(dataset=variant, iterator=iterator._iterator_resource)
            with tf.control_dependencies([making]):
                return tf.group(tf.raw_ops.AssignVariableOp(resource=made, value=True))

        is_made = tf.raw_ops.VarIsInitializedOp(resource=made)
        ready = tf.compat.v1.cond(is_made, tf.no_op, make)
        tf.compat.v1.add_to_collection(_RENEWALS, make())
    with tf.control_dependencies([*after, ready]):
        return list(iterator.get_next())


def renew_waiting_nodes(session: Any) -> None:
    """Make the waiting nodes of a session's graph usable after a ``run`` that ended with an error.

    TensorFlow cancels an iterator for good when a step ends so while the iterator is asked.
    """
    renewals = session.graph.get_collection(_RENEWALS)
    if renewals:
        session.run(renewals)


def _mapped(numbers: tf.data.Dataset, call: Callable[[Any], Any], options: tf.data.Options) -> Any:
    """Return the dataset of what ``call`` makes of each number, not on a thread of the session's.

    The iterator's own thread can only be had by a class that TensorFlow does not document; a private pool,
    where that is another class than it was, costs two switches of threads more: 0.05 ms of processor time.
    """
    try:
        from tensorflow.python.data.ops.map_op import _MapDataset

        return _MapDataset(numbers, call, force_synchronous=True, use_inter_op_parallelism=False)
    except (ImportError, TypeError):
        options.threading.private_threadpool_size = 1
        return numbers.map(call)
