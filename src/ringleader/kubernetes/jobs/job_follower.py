"""A job on a cluster is followed to its end: progress, the launcher's log, the outcome."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from ringleader.errors import Fault, RefusedError
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import JOBS, MPIJOBS, PODS
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.pod_view import PodView
from ringleader.kubernetes.client.retry import Outage
from ringleader.kubernetes.jobs.exit_status import End, end_of, main_container
from ringleader.kubernetes.jobs.job_diagnosis import explain
from ringleader.kubernetes.jobs.job_lookup import age, events_of
from ringleader.kubernetes.jobs.job_snapshot import EventView, JobSnapshot, JobView, State
from ringleader.kubernetes.jobs.job_view import (
    as_pods_run,
    job_pod_view,
    mpijob_view,
    pods_job_view,
    selector,
)
from ringleader.kubernetes.jobs.pod_log import follow_log
from ringleader.kubernetes.jobs.progress_line import Progress, is_about_to_end, progress
from ringleader.kubernetes.jobs.refusal_messages import refused
from ringleader.kubernetes.jobs.watch_cache import tell_when_synced, values, watched
from ringleader.kubernetes.mpijob import object_names

LOG_PATIENCE = 30.0
"""Seconds that the rest of the log may take once the job has ended."""
CODE_PATIENCE = 2.0
"""Seconds after a job's end in which the launcher's Pod may still report its exit code."""
LOOK_AGAIN = 3.0
"""Seconds between looks at the events of a job that does not run yet."""


class Listener(Protocol):
    """Whoever waits for the job."""

    def output(self, data: bytes) -> None:
        """Take a piece of the launcher's log."""

    def progress(self, progress: Progress) -> None:
        """Take how far the job has come."""

    def warning(self, text: str) -> None:
        """Take something worth knowing although the job goes on."""


class Follower:
    """One job, followed."""

    def __init__(
        self,
        cluster: Cluster,
        job: JobView,
        listener: Listener,
        *,
        clock: Callable[[], float],
        shows_log: bool = True,
    ) -> None:
        """``job``: as it was last seen. ``clock``: seconds since the epoch."""
        self._cluster, self._listener, self._clock = cluster, listener, clock
        self._shows_log = shows_log
        self._first = job
        self._news = asyncio.Event()
        self._outage = Outage(listener.warning)
        self._events: tuple[EventView, ...] = ()
        self._may_read_events = True
        resource, name, view = MPIJOBS, job.name, mpijob_view
        if job.on == "pods":
            resource, name, view = JOBS, object_names.launcher(job.name), pods_job_view
        self._resource = resource
        self._job = watched(
            cluster,
            resource,
            job.namespace,
            view=view,
            changed=lambda _: self._news.set(),
            outage=self._outage,
            fields=f"metadata.name={name}",
        )
        self._launchers: dict[str, PodView] = {}
        """Every Pod of the launcher as it was last seen, those that are gone among them."""
        self._pods = watched(
            cluster,
            PODS,
            job.namespace,
            view=job_pod_view,
            changed=self._pod_changed,
            outage=self._outage,
            labels=selector(job.name),
        )

    @property
    def snapshot(self) -> JobSnapshot:
        """What is known now. The launcher's Pods that are gone are among the Pods: they had the exit code."""
        present = values(self._pods)
        before = tuple(
            pod for name, pod in self._launchers.items() if name not in {one.name for one in present}
        )
        job = next(iter(values(self._job)), self._first)
        if job.on == "pods":
            job = as_pods_run(job, present)
        return JobSnapshot(
            job=job,
            pods=(*present, *before),
            events=self._events,
            age=age(job.created_at, self._clock()),
        )

    def _pod_changed(self, pod: PodView | None) -> None:
        if pod is not None and pod.role == "launcher":
            self._launchers[pod.name] = pod
        self._news.set()

    async def run(self, *, start_timeout: float | None = None) -> End:
        """Return how the job ended. Raises RefusedError: deleted meanwhile, late to start, forbidden."""
        async with contextlib.AsyncExitStack() as stack:
            start = _starter(stack)
            watchers = [start(self._job.run()), start(self._pods.run())]
            for informer in (self._job, self._pods):
                start(tell_when_synced(informer, self._news.set))
            start(self._look_at_events())
            log = start(self._show_log())
            end = await self._wait(watchers, log, start_timeout)
            if self._shows_log:
                await self._rest_of(log)
            return end

    async def _wait(
        self, watchers: list[asyncio.Task[None]], log: asyncio.Task[None], start_timeout: float | None
    ) -> End:
        loop = asyncio.get_running_loop()
        limit = None if start_timeout is None else loop.time() + start_timeout
        told: str | None = None
        late: float | None = None
        while True:
            self._news.clear()
            self._raise_from(watchers)
            if log.done():
                log.result()  # whoever read it may be gone
            snapshot = self.snapshot
            if self._job.synced.is_set() and not len(self._job):
                raise RefusedError("was deleted while we followed it", where=f"job {self._first.name}")
            if self._job.synced.is_set() and self._pods.synced.is_set():
                end = end_of(snapshot)
                if end is not None:
                    late = late or loop.time() + CODE_PATIENCE
                    if not _lacks_code(end) or loop.time() >= late:
                        return end
                now = progress(snapshot)
                if now.text != told and not (
                    snapshot.job.state is State.PENDING and is_about_to_end(snapshot)
                ):
                    told = now.text
                    self._listener.progress(now)
            if snapshot.job.state is State.RUNNING or snapshot.job.state.is_end:
                limit = None
            if limit is not None and loop.time() >= limit:
                raise _too_late(snapshot, start_timeout or 0.0)
            tasks = [*watchers, *([] if log.done() else [log])]
            await self._more(tasks, min((one for one in (limit, late) if one is not None), default=None))

    async def _more(self, tasks: list[asyncio.Task[None]], until: float | None) -> None:
        """Wait for news, for the end of a task, or until a moment of the loop's clock."""
        news = asyncio.ensure_future(self._news.wait())
        timeout = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
        await asyncio.wait({news, *tasks}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        news.cancel()

    def _raise_from(self, watchers: list[asyncio.Task[None]]) -> None:
        for watcher, resource in zip(watchers, (self._resource, PODS), strict=True):
            if watcher.done():
                error = watcher.exception()
                if isinstance(error, ApiError):
                    space = self._first.namespace
                    raise refused(
                        error, doing="watch", resource=resource, name="", namespace=space
                    ) from error
                if error is not None:
                    raise error

    async def _look_at_events(self) -> None:
        """Keep the events of a job that does not run up to date; they tell what its Pods cannot."""
        while self._may_read_events:
            snapshot = self.snapshot
            if snapshot.job.state in (State.PENDING, State.RESTARTING) and self._job.synced.is_set():
                try:
                    self._events = await events_of(self._cluster, snapshot)
                    self._news.set()
                except ApiError as error:
                    self._may_read_events = error.is_passing
                except UnreachableError:
                    pass
            await asyncio.sleep(LOOK_AGAIN)

    async def _show_log(self) -> None:
        """Show the log of each attempt of the launcher, one after the other."""
        seen: set[str] = set()
        while self._shows_log:
            snapshot = self.snapshot
            pod = next(
                (one for one in snapshot.launchers if one.name not in seen and self._has_log(one)), None
            )
            if pod is None:
                if snapshot.job.state.is_end and self._pods.synced.is_set():
                    return
                await asyncio.sleep(0.1)
                continue
            seen.add(pod.name)
            try:
                await self._show(pod)
            except ApiError as error:
                said = f"the log of {pod.name} cannot be read: {error.message or error.reason}"
                self._listener.warning(said)

    async def _show(self, pod: PodView) -> None:
        name = self._first.namespace
        async for data in follow_log(
            self._cluster,
            pod.name,
            name,
            container=self.snapshot.job.launcher_container,
            outage=self._outage,
            warn=self._listener.warning,
        ):
            self._listener.output(data)

    def _has_log(self, pod: PodView) -> bool:
        main = main_container(pod, self.snapshot.job.launcher_container)
        return main is not None and (main.state != "waiting" or main.last_exit_code is not None)

    async def _rest_of(self, log: asyncio.Task[None]) -> None:
        done, _ = await asyncio.wait({log}, timeout=LOG_PATIENCE)
        if not done:
            self._listener.warning(f"the rest of the log: ringleader logs {self._first.name}")
        elif (error := log.exception()) is not None:
            raise error


def _starter(
    stack: contextlib.AsyncExitStack,
) -> Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]:
    """Return what starts tasks that end with ``stack``."""

    def start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        stack.push_async_callback(_stop, task)
        return task

    return start


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task


def _lacks_code(end: End) -> bool:
    """Say whether the launcher's exit code may still come."""
    return end.state == State.FAILED and end.whose == "the cluster" and end.exit_code == 3


def _too_late(snapshot: JobSnapshot, seconds: float) -> RefusedError:
    faults = [Fault(where=one.where, what=one.what, hint=one.hint) for one in explain(snapshot)[:5]]
    what = f"did not run within {seconds:g} seconds (--start-timeout)"
    return RefusedError([Fault(where=f"job {snapshot.job.name}", what=what), *faults])
