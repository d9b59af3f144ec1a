"""The running operator: informers fill the caches, workers take jobs from the queue, probes are answered."""

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
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.retry import Backoff, may_pass
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.operator.runtime import rbac_check
from ringleader.kubernetes.operator.runtime.caches import Caches
from ringleader.kubernetes.operator.runtime.events import EventSender
from ringleader.kubernetes.operator.runtime.leader_election import Leader, LeaseOptions, LoopThread
from ringleader.kubernetes.operator.runtime.monitoring import Metrics, ProbeServer
from ringleader.kubernetes.operator.runtime.reconciler import Key, PassResult, Reconciler
from ringleader.kubernetes.operator.runtime.work_queue import RequeueBackoff, WorkQueue

_log = logging.getLogger(__name__)
_LAST_WORDS = 3.0
"""Seconds for events that are still to be sent at the end."""


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
    "Jobs to process in parallel."
    parallel_requests: int = 64
    """Requests of one job under way at the same time."""
    pass_deadline: float = 300.0
    """For one pass over one job."""
    resync: float = 300.0
    """A job that has not ended is looked at this often even if nothing happens."""
    stop_within: float = 15.0
    """For passes under way when the process is stopped."""
    silence: float = 5.0
    """The API server may be silent for this long before the process is no longer ready."""
    watch_silence: float = 90.0
    """A watch that told nothing for this long, not even a version, is opened anew."""
    watch_backoff: Backoff = field(default_factory=Backoff)
    """Before a watch that broke off is opened anew."""
    pauses: RequeueBackoff = field(default_factory=RequeueBackoff)
    event_pause: float = 0.5
    """Before an event that was not sent is tried again, the first time."""


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
        self._cluster, self._lease_cluster = cluster, lease_cluster
        self._lease_thread: LoopThread | None = None
        self._options = options
        self._rights = rbac_check.required_rights(settings)
        self.metrics = Metrics()
        cluster.observe = self.metrics.requested
        self._queue: WorkQueue[Key] = WorkQueue(clock=monotonic, pauses=options.pauses)
        self._caches = Caches(
            cluster,
            clock=monotonic,
            changed=self._changed,
            namespace=options.namespace,
            silence=options.watch_silence,
            backoff=options.watch_backoff,
        )
        self._events = EventSender(cluster, clock=time, first_pause=options.event_pause)
        self._reconciler = Reconciler(
            cluster,
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
            self._leader = Leader(lease_cluster or cluster, options.lease, steady=monotonic, now=time)
        self._probes = ProbeServer(is_healthy=self._ill, is_ready=self._unready, metrics=self.metrics)
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        self.metrics.queued.set_function(lambda: len(self._queue))
        self.metrics.at_work.set_function(lambda: self._queue.at_work)

    @property
    def port(self) -> int:
        """The port for probes, once it is listened on."""
        return self._probes.port

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set. RefusedError: the cluster does not let us, or the lead is lost."""
        try:
            if self._options.port is not None:
                await self._probes.start(self._options.host, self._options.port)
                _log.info("answers probes", extra={"port": self._probes.port})
            # The first task to fail ends all others, the winding up included: nothing works without the lead.
            async with asyncio.TaskGroup() as group:
                self._tasks = [group.create_task(self._begin(group))]
                await stop.wait()
                await self._wind_up()
                for task in self._tasks:
                    task.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            if self._leader is not None:
                await self._beside(self._leader.give_back())
            await self._probes.stop()
            await self._cluster.close()
            if self._lease_cluster is not None:
                await self._beside(self._lease_cluster.close())
            if self._lease_thread is not None:
                self._lease_thread.close()

    async def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what concerns the Lease, in its thread where it has one."""
        if self._lease_thread is None and self._lease_cluster is not None:
            self._lease_thread = LoopThread("lease")
        await (work if self._lease_thread is None else self._lease_thread.run(work))

    async def _begin(self, group: asyncio.TaskGroup) -> None:
        """Check that we may, fill the caches, take the lead, and let the workers begin."""
        await self._check()
        informers = self._caches.watched.values()
        self._tasks += [group.create_task(one.run()) for one in informers]
        self._tasks.append(group.create_task(self._events.run()))
        for informer in informers:
            await informer.synced.wait()
        if self._leader is not None:
            taken, loop = asyncio.Event(), asyncio.get_running_loop()
            lead = self._leader.lead(lambda: loop.call_soon_threadsafe(taken.set))
            self._tasks.append(group.create_task(self._beside(lead)))
            await taken.wait()
        self.metrics.leader.set(1)
        _log.info("looks after MPIJobs", extra={"jobs": len(self._caches.mpijobs)})
        self._workers = [group.create_task(self._worker()) for _ in range(self._options.parallel_jobs)]
        self._tasks += self._workers

    async def _check(self) -> None:
        """Check the CRD and our rights, again and again while the server does not answer."""
        lock = None if self._options.lease is None else self._options.lease.namespace
        for attempt in itertools.count(1):
            try:
                await rbac_check.check(self._cluster, self._options.namespace, lock, self._rights)
                return
            except (ApiError, UnreachableError) as error:
                # A conflict cannot be meant for a list: whatever says so on the way says otherwise later.
                if not (may_pass(error) or (isinstance(error, ApiError) and error.is_stale)):
                    raise
                _log.warning("the API server does not answer yet: %s", error)
            await asyncio.sleep(self._options.pauses.after(attempt))

    async def _wind_up(self) -> None:
        """Let the passes under way come to their end, and send their events."""
        _log.info("stops")
        self._queue.close()
        if self._workers:
            _, pending = await asyncio.wait(self._workers, timeout=self._options.stop_within)
            if pending:
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
            self._settle(key, result)

    def _settle(self, key: Key, result: PassResult) -> None:
        """Tell the queue how a pass ended."""
        if result.is_gone:
            self._queue.done(key)
            self._queue.forget(key)
        elif result.error is not None:
            self._queue.failed(key, at_least=result.at_least, has_progressed=result.has_progressed)
        elif result.is_blocked:
            self._queue.failed(key, has_progressed=result.has_progressed)
            if result.again_after is not None:
                self._queue.add(key, after=result.again_after)
        else:
            self._queue.done(key, again_after=result.again_after, rest=result.rest)

    def _changed(self, namespace: str, job: str) -> None:
        if job:
            self._queue.add((namespace, job))

    def _ill(self) -> str:
        is_sound = self._leader is None or self._leader.is_sound()
        return "" if is_sound else "the Lease is neither renewed nor given up"

    def _unready(self) -> str:
        watched = self._caches.watched.items()
        if waiting := [resource.plural for resource, one in watched if not one.synced.is_set()]:
            return f"not yet listed: {', '.join(waiting)}"
        since = self._cluster.silent_since
        if since is not None and monotonic() - since > self._options.silence:
            return f"the API server has not answered for {monotonic() - since:.0f} s"
        return ""
