"""A job on a cluster is followed to its end: progress, the launcher's log (`pod_log`), the outcome."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ringleader.errors import Fault, RefusedError
from ringleader.followed_job import End, Listener
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import PODS
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.informer import Kept
from ringleader.kubernetes.client.retry import Outage
from ringleader.kubernetes.jobs.job_diagnosis import end_of, explain, is_about_to_end, progress
from ringleader.kubernetes.jobs.job_lookup import KINDS, events_of, watched
from ringleader.kubernetes.jobs.job_state import (
    EventView,
    JobSnapshot,
    JobView,
    State,
    age,
    as_pods_run,
    job_pod_view,
    led,
    main_container,
)
from ringleader.kubernetes.jobs.pod_log import follow_log
from ringleader.kubernetes.pod_view import PodView
from ringleader.kubernetes.why_not_running import refused

LOG_PATIENCE = 30.0
"""Seconds that the rest of the log may take once the job has ended."""
CODE_PATIENCE = 2.0
"""Seconds after a job's end in which the launcher's Pod may still report its exit code."""
LOOK_AGAIN = 3.0
"""Seconds between looks at the events of a job that does not run yet."""


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
        self._news, self._outage = asyncio.Event(), Outage(listener.warning)
        self._events: tuple[EventView, ...] = ()
        self._launchers: dict[str, PodView] = {}
        """Every Pod of the launcher as it was last seen, those that are gone among them."""
        kind = KINDS[job.on]
        self._job = watched(
            cluster,
            kind.resource,
            job.namespace,
            view=kind.view,
            news=self._news,
            outage=self._outage,
            fields=f"metadata.name={kind.object_name(job.name)}",
        )
        self._pods = watched(
            cluster,
            PODS,
            job.namespace,
            view=job_pod_view,
            news=self._news,
            outage=self._outage,
            labels=job.selector,
            changed=self._pod_changed,
        )

    @property
    def snapshot(self) -> JobSnapshot:
        """What is known now. The launcher's Pods that are gone are among the Pods: they had the exit code."""
        present = {kept.name: kept.value for kept in self._pods.items()}
        gone = {name: pod for name, pod in self._launchers.items() if name not in present}
        job = next((kept.value for kept in self._job.items()), self._first)
        if job.on == "pods":
            job = as_pods_run(job, tuple(present.values()))
        return JobSnapshot(
            job=job,
            pods=led(job, (*present.values(), *gone.values())),
            events=self._events,
            age=age(job.created_at, self._clock()),
        )

    def _pod_changed(self, _before: Kept[PodView] | None, now: Kept[PodView] | None) -> None:
        if now is not None and now.value.role == "launcher":
            self._launchers[now.name] = now.value

    async def run(self, *, start_timeout: float | None = None) -> End:
        """Return how the job ended. Raises RefusedError: deleted meanwhile, late to start, forbidden."""
        watchers = [asyncio.create_task(one.run()) for one in (self._job, self._pods)]
        events, log = asyncio.create_task(self._look_at_events()), asyncio.create_task(self._show_log())
        try:
            end = await self._wait(watchers, log, start_timeout)
            if self._shows_log and end.launcher:
                await self._rest_of(log)
            return end
        finally:
            for task in (log, events, *watchers):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

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
                is_ending = snapshot.job.state is State.PENDING and is_about_to_end(snapshot)
                if now.text != told and not is_ending:
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
        for watcher, resource in zip(watchers, (self._job.resource, PODS), strict=True):
            error = watcher.exception() if watcher.done() else None
            if isinstance(error, ApiError):
                space = self._first.namespace
                raise refused(error, doing="watch", resource=resource, name="", namespace=space) from error
            if error is not None:
                raise error

    async def _look_at_events(self) -> None:
        """Keep the events of a job that does not run up to date; they tell what its Pods cannot."""
        while True:
            snapshot = self.snapshot
            if snapshot.job.state in (State.PENDING, State.RESTARTING) and self._job.synced.is_set():
                try:
                    self._events = await events_of(self._cluster, snapshot)
                    self._news.set()
                except ApiError as error:
                    if not error.is_passing:
                        return
                except UnreachableError:
                    pass
            await asyncio.sleep(LOOK_AGAIN)

    async def _show_log(self) -> None:
        """Show the log of each attempt of the launcher, one after the other."""
        seen: set[str] = set()
        while self._shows_log:
            snapshot = self.snapshot
            name = snapshot.job.launcher_container
            pod = next((p for p in snapshot.launchers if p.name not in seen and _has_log(p, name)), None)
            if pod is None:
                if snapshot.job.state.is_end and self._pods.synced.is_set():
                    return
                await asyncio.sleep(0.1)
                continue
            seen.add(pod.name)
            try:
                async for data in follow_log(
                    self._cluster,
                    pod.name,
                    self._first.namespace,
                    container=name,
                    outage=self._outage,
                    warn=self._listener.warning,
                ):
                    self._listener.output(data)
            except ApiError as error:
                said = f"the log of {pod.name} cannot be read: {error.message or error.reason}"
                self._listener.warning(said)

    async def _rest_of(self, log: asyncio.Task[None]) -> None:
        done, _ = await asyncio.wait({log}, timeout=LOG_PATIENCE)
        if not done:
            self._listener.warning(f"the rest of the log: ringleader k8s logs {self._first.name}")
        elif (error := log.exception()) is not None:
            raise error


def _has_log(pod: PodView, container: str) -> bool:
    main = main_container(pod, container)
    return main is not None and (main.state != "waiting" or main.last_exit_code is not None)


def _lacks_code(end: End) -> bool:
    """Say whether the launcher's exit code may still come."""
    return end.state == State.FAILED and end.whose == "the cluster" and end.exit_code == 3


def _too_late(snapshot: JobSnapshot, seconds: float) -> RefusedError:
    faults = [Fault(where=one.where, what=one.what, hint=one.hint) for one in explain(snapshot)[:5]]
    what = f"did not run within {seconds:g} seconds (--start-timeout)"
    return RefusedError([Fault(where=f"job {snapshot.job.name}", what=what), *faults])
