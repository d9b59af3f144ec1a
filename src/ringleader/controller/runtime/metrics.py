"""Numbers for Prometheus, under the reference controller's names where it has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from ringleader.mpijob.status import ConditionType

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


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
