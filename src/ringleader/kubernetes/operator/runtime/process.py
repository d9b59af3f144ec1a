"""The running operator: informers fill the views, workers take jobs from the queue, probes are answered."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any

from ringleader.errors import RefusedError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import JOBS, MPIJOBS, PODS, SERVICES
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.informer import Informer
from ringleader.kubernetes.client.retry import Backoff, may_pass
from ringleader.kubernetes.mpijob.object_metadata import MANAGED_BY, MANAGER, OPERATOR, OPERATOR_NAME
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.operator.runtime import rbac_check
from ringleader.kubernetes.operator.runtime.caches import PROJECTIONS, Caches
from ringleader.kubernetes.operator.runtime.events import EventSender
from ringleader.kubernetes.operator.runtime.health import HealthServer
from ringleader.kubernetes.operator.runtime.leader_election import Leader, LeaseOptions, LoopThread
from ringleader.kubernetes.operator.runtime.metrics import MeteredCluster, Metrics
from ringleader.kubernetes.operator.runtime.reconciler import Key, PassResult, Reconciler
from ringleader.kubernetes.operator.runtime.work_queue import RequeueBackoff, WorkQueue

_log = logging.getLogger(__name__)
_LAST_WORDS = 3.0
"""Seconds for events that are still to be sent at the end."""
OURS = f"{MANAGED_BY}={MANAGER}"
"""Label selector of what the operator makes itself."""
PODS_OF_JOBS = f"{OPERATOR_NAME}={OPERATOR}"
"""Label selector of the Pods of MPIJobs, the launchers' among them and those of the reference controller."""
WATCHED = {MPIJOBS: "", PODS: PODS_OF_JOBS, JOBS: OURS, SERVICES: OURS}
"""Watched kind → label selector."""


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """How the process works. Times in seconds."""

    namespace: str = ""
    """Namespace that is looked after; empty for all."""
    lease: LeaseOptions | None = None
    """``None``: this is the only controller."""
    host: str = ""
    """Address that probes are answered on; empty for all of the Pod's."""
    port: int | None = 8080
    """Port for /healthz, /readyz and /metrics; 0 for any free one, ``None`` for none."""
    parallel_jobs: int = 32
    """Jobs that are looked at side by side."""
    parallel_requests: int = 64
    """Requests of one job under way at the same time."""
    pass_deadline: float = 300.0
    """For one pass over one job."""
    resync: float = 300.0
    """A job that has not ended is looked at so often even if nothing happens."""
    stop_within: float = 15.0
    """For passes under way when the process is told to stop."""
    silence: float = 5.0
    """The API server may be silent for so long before the process is no longer ready."""
    watch_silence: float = 90.0
    """A watch that told nothing for so long, not even a version, is opened anew."""
    watch_backoff: Backoff = field(default_factory=Backoff)
    """Before a watch that broke off is opened anew."""
    pauses: RequeueBackoff = field(default_factory=RequeueBackoff)
    event_pause: float = 0.5
    """Before an event that was not sent is tried again, the first time."""


class TaskSet:
    """Tasks of which the first to fail ends the others."""

    def __init__(self) -> None:
        """Start with none."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._error: BaseException | None = None
        self._has_failed = asyncio.Event()

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start a task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def failure(self) -> None:
        """Wait for a task to fail, and raise what it raised."""
        await self._has_failed.wait()
        assert self._error is not None
        raise self._error

    async def ended(self, timeout: float) -> bool:
        """Wait for every task to end by itself; False where some have not in so many seconds."""
        if not self._tasks:
            return True
        _, pending = await asyncio.wait(self._tasks, timeout=timeout)
        return not pending

    async def cancel(self) -> None:
        """End every task."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self._error is None:
            self._error = error
            self._has_failed.set()


class Operator:
    """One process of the operator."""

    def __init__(
        self,
        cluster: Cluster,
        settings: OperatorSettings,
        options: ProcessOptions,
        *,
        lease_cluster: Cluster | None = None,
    ) -> None:
        """``cluster`` is closed at the end of ``run``, and so is ``lease_cluster``.

        The Lease is renewed through the latter, in its own thread, where it waits for no Pod and no decision.
        Nothing else may use it or its credentials, as its connections belong to that thread.
        """
        self._own, self._lease_cluster = cluster, lease_cluster
        self._lease_thread: LoopThread | None = None
        self._options = options
        self._rights = rbac_check.required_rights(settings)
        self.metrics = Metrics()
        self._cluster = MeteredCluster(cluster, count=self.metrics.requested, clock=monotonic)
        self._queue: WorkQueue[Key] = WorkQueue(clock=monotonic, pauses=options.pauses)
        self._caches = Caches(self._cluster, clock=monotonic, changed=self._changed)
        self._events = EventSender(self._cluster, clock=time, first_pause=options.event_pause)
        self._reconciler = Reconciler(
            self._cluster,
            self._caches,
            settings,
            steady=monotonic,
            now=time,
            events=self._events,
            metrics=self.metrics,
            parallel_requests=options.parallel_requests,
            deadline=options.pass_deadline,
            resync=options.resync,
        )
        self._leader: Leader | None = None
        if options.lease is not None:
            through = lease_cluster or self._cluster
            self._leader = Leader(through, options.lease, steady=monotonic, now=time)
        self._health = HealthServer(is_healthy=self._ill, is_ready=self._unready, metrics=self.metrics)
        self._informers = self._make_informers()
        self._works = False
        self.metrics.queue(lambda: len(self._queue), lambda: self._queue.at_work)

    @property
    def port(self) -> int:
        """The port for probes, once it is listened on."""
        return self._health.port

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop. RefusedError: the cluster does not let us, or the lead is lost."""
        background, workers = TaskSet(), TaskSet()
        try:
            if self._options.port is not None:
                await self._health.start(self._options.host, self._options.port)
                _log.info("answers probes", extra={"port": self._health.port})
            background.start(self._begin(background, workers))
            ends = [
                asyncio.create_task(one) for one in (stop.wait(), background.failure(), workers.failure())
            ]
            done, pending = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            for task in done:
                task.result()
            await self._wind_up(background, workers)
        finally:
            self._works = False
            await workers.cancel()
            await background.cancel()
            if self._leader is not None:
                await self._beside(self._leader.give_back())
            await self._health.stop()
            await self._own.close()
            if self._lease_cluster is not None:
                await self._beside(self._lease_cluster.close())
            if self._lease_thread is not None:
                self._lease_thread.close()

    async def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what concerns the Lease, in its thread where it has one."""
        if self._lease_thread is None and self._lease_cluster is not None:
            self._lease_thread = LoopThread("lease")
        await (work if self._lease_thread is None else self._lease_thread.run(work))

    async def _begin(self, background: TaskSet, workers: TaskSet) -> None:
        """Ask whether we may, fill the views, take the lead, and let the workers begin."""
        await self._check()
        for informer in self._informers:
            background.start(informer.run())
        background.start(self._events.run())
        for informer in self._informers:
            await informer.synced.wait()
        if self._leader is not None:
            await self._beside(self._leader.take())
            background.start(self._beside(self._leader.hold()))
        self.metrics.leads(True)
        self._works = True
        _log.info("looks after MPIJobs", extra={"jobs": len(self._caches.mpijobs)})
        for _ in range(self._options.parallel_jobs):
            workers.start(self._worker())

    async def _check(self) -> None:
        """Ask for the CRD and our rights, again and again while the server does not answer."""
        lock = None if self._options.lease is None else self._options.lease.namespace
        for attempt in itertools.count(1):
            try:
                await rbac_check.check(self._cluster, self._options.namespace, lock, self._rights)
                return
            except (ApiError, UnreachableError) as error:
                # A conflict cannot be meant for a list: whatever says so on the way says otherwise later.
                if not (may_pass(error) or (isinstance(error, ApiError) and error.is_stale)):
                    raise
                _log.warning("the API server is not there yet: %s", error)
            await asyncio.sleep(self._options.pauses.after(attempt))

    async def _wind_up(self, background: TaskSet, workers: TaskSet) -> None:
        """Let the passes under way come to their end; not once the lead is lost, which is raised."""
        _log.info("stops")
        self._queue.close()
        failure = asyncio.create_task(background.failure())
        ended = asyncio.create_task(workers.ended(self._options.stop_within))
        await asyncio.wait((failure, ended), return_when=asyncio.FIRST_COMPLETED)
        if failure.done():
            failure.result()
        failure.cancel()
        if not ended.result():
            _log.warning("passes did not end in %g s and are broken off", self._options.stop_within)
        try:
            async with asyncio.timeout(_LAST_WORDS):
                await self._events.drained()
        except TimeoutError:
            _log.warning("events were not all sent")

    async def _worker(self) -> None:
        while (key := await self._queue.take()) is not None:
            try:
                result = await self._reconciler.reconcile(key)
            except Exception as error:
                _log.exception("a pass broke down", extra={"job": "/".join(key)})
                result = PassResult(error=RefusedError(str(error)))
            settle(self._queue, key, result)

    def _changed(self, namespace: str, job: str) -> None:
        if job:
            self._queue.add((namespace, job))

    def _ill(self) -> str:
        if self._leader is not None and not self._leader.is_sound():
            return "the Lease is neither renewed nor given up"
        return ""

    def _unready(self) -> str:
        if waiting := [one.resource.plural for one in self._informers if not one.synced.is_set()]:
            return f"not yet listed: {', '.join(waiting)}"
        since = self._cluster.silent_since
        if since is not None and monotonic() - since > self._options.silence:
            return f"the API server has not answered for {monotonic() - since:.0f} s"
        return ""

    def _make_informers(self) -> tuple[Informer[Any], ...]:
        return tuple(
            Informer(
                self._cluster,
                resource,
                namespace=self._options.namespace,
                labels=labels,
                project=PROJECTIONS[resource],
                changed=self._caches.watched[resource].from_watch,
                silence=self._options.watch_silence,
                backoff=self._options.watch_backoff,
            )
            for resource, labels in WATCHED.items()
        )


def settle(queue: WorkQueue[Key], key: Key, result: PassResult) -> None:
    """Tell the queue how a pass ended."""
    if result.is_gone:
        queue.done(key)
        queue.forget(key)
    elif result.error is not None:
        queue.failed(key, at_least=result.at_least, has_progressed=result.has_progressed)
    elif result.is_blocked:
        queue.failed(key, has_progressed=result.has_progressed)
        if result.again_after is not None:
            queue.add(key, after=result.again_after)
    else:
        queue.done(key, again_after=result.again_after, rest=result.rest)
