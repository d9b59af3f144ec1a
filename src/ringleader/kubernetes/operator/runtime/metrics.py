"""Numbers for Prometheus, named as by the reference controller where it has them; API requests count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from typing import Any, ParamSpec, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import Resource
from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.mpijob.status import ConditionType

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

P = ParamSpec("P")
T = TypeVar("T")
Count = Callable[[str, str, str, float], None]
"""Hears of each request: verb, resource, HTTP status or word, seconds."""


class Metrics:
    """The numbers of one controller, in a registry of its own."""

    def __init__(self) -> None:
        """Start at zero."""
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._created = Counter("mpi_operator_jobs_created_total", "MPIJobs taken up", registry=registry)
        self._succeeded = Counter(
            "mpi_operator_jobs_successful_total", "MPIJobs that succeeded", registry=registry
        )
        self._failed = Counter("mpi_operator_jobs_failed_total", "MPIJobs that failed", registry=registry)
        self._restarted = Counter(
            "mpi_operator_jobs_restarted_total", "Times that an MPIJob began to restart", registry=registry
        )
        self._info = Gauge(
            "mpi_operator_job_info", "One for each MPIJob", ["launcher", "namespace"], registry=registry
        )
        self._leader = Gauge("mpi_operator_is_leader", "1 in the process that leads", registry=registry)
        self._queued = Gauge("mpi_operator_queue_jobs", "Jobs that wait for a look", registry=registry)
        self._at_work = Gauge("mpi_operator_queue_jobs_at_work", "Jobs looked at now", registry=registry)
        self._passes = Histogram(
            "mpi_operator_pass_seconds",
            "Length of a pass over a job",
            ["result"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._decisions = Histogram(
            "mpi_operator_decide_seconds", "Time to decide on a job", buckets=_SECONDS, registry=registry
        )
        self._requests = Histogram(
            "mpi_operator_api_request_seconds",
            "Requests to the API server",
            ["verb", "resource", "code"],
            buckets=_SECONDS,
            registry=registry,
        )

    def conditions(self, before: Iterable[str], after: Iterable[str]) -> None:
        """Count what a write of a job's status made true: the types of the conditions that hold."""
        new = set(after) - set(before)
        counters = {
            ConditionType.CREATED: self._created,
            ConditionType.SUCCEEDED: self._succeeded,
            ConditionType.FAILED: self._failed,
            ConditionType.RESTARTING: self._restarted,
        }
        for type_, counter in counters.items():
            if type_ in new:
                counter.inc()

    def job(self, namespace: str, launcher: str) -> None:
        """Show a job."""
        self._info.labels(launcher, namespace).set(1)

    def job_gone(self, namespace: str, launcher: str) -> None:
        """Show a job no longer."""
        try:
            self._info.remove(launcher, namespace)
        except KeyError:
            return

    def leads(self, is_leader: bool) -> None:
        """Say whether this process leads."""
        self._leader.set(1 if is_leader else 0)

    def queue(self, queued: Callable[[], int], at_work: Callable[[], int]) -> None:
        """Show the state of the queue, read when the numbers are asked for."""
        self._queued.set_function(queued)
        self._at_work.set_function(at_work)

    def passed(self, result: str, seconds: float) -> None:
        """Count a pass."""
        self._passes.labels(result).observe(seconds)

    def decided(self, seconds: float) -> None:
        """Count a decision."""
        self._decisions.observe(seconds)

    def requested(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Count a request to the API server."""
        self._requests.labels(verb, resource, code).observe(seconds)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)


def true_conditions(status: Mapping[str, object]) -> list[str]:
    """Return the types of the conditions that hold in a status as the server stores it."""
    conditions = status.get("conditions")
    found = conditions if isinstance(conditions, list | tuple) else ()
    return [one["type"] for one in found if one.get("status") == "True"]


class MeteredCluster:
    """A cluster's port that counts: how long requests take, how they end, whether the server answers at all.

    Every verb is passed on to another port. See ``Cluster``.
    """

    def __init__(self, cluster: Cluster, *, count: Count, clock: Callable[[], float]) -> None:
        """``clock``: seconds that never go back."""
        self._count, self._clock = count, clock
        self.silent_since: float | None = None
        """When it first failed to answer after its last answer."""
        self.get = self._timed("get", cluster.get)
        self.list = self._timed("list", cluster.list)
        self.pages = self._streamed("list", cluster.pages)
        self.watch = self._streamed("watch", cluster.watch)
        self.create = self._timed("create", cluster.create)
        self.replace = self._timed("update", cluster.replace)
        self.patch = self._timed("patch", cluster.patch)
        self.delete = self._timed("delete", cluster.delete)
        self.logs, self.close = cluster.logs, cluster.close

    def _timed(
        self, verb: str, call: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        async def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            began, resource = self._clock(), _resource_of(args)
            try:
                found = await call(*args, **kwargs)
            except (ApiError, UnreachableError) as error:
                self._failed(verb, resource, error, began)
                raise
            except asyncio.CancelledError:
                self._count(verb, resource, "cancelled", self._clock() - began)
                raise
            self._heard()
            self._count(verb, resource, "2xx", self._clock() - began)
            return found

        return timed

    def _streamed(
        self, verb: str, call: Callable[P, AsyncGenerator[T, None]]
    ) -> Callable[P, AsyncGenerator[T, None]]:
        """Count each piece of a list by itself; a watch lives long and counts where it fails."""

        async def streamed(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
            began, resource = self._clock(), _resource_of(args)
            try:
                async with aclosing(call(*args, **kwargs)) as pieces:
                    async for piece in pieces:
                        self._heard()
                        if verb != "watch":
                            self._count(verb, resource, "2xx", self._clock() - began)
                        yield piece
                        if verb != "watch":
                            began = self._clock()
                self._heard()
            except (ApiError, UnreachableError) as error:
                self._failed(verb, resource, error, began)
                raise

        return streamed

    def _failed(self, verb: str, resource: str, error: Exception, began: float) -> None:
        if isinstance(error, ApiError):
            self._heard()
        elif self.silent_since is None:
            self.silent_since = self._clock()
        word = str(error.status) if isinstance(error, ApiError) else "unreachable"
        self._count(verb, resource, word, self._clock() - began)

    def _heard(self) -> None:
        self.silent_since = None


def _resource_of(args: tuple[object, ...]) -> str:
    """Return the plural of the resource that a verb's first argument names."""
    assert isinstance(args[0], Resource)
    return args[0].plural
