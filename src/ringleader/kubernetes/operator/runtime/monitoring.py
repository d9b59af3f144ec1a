"""What is seen of the operator from outside: numbers for Prometheus, probes over HTTP, lines of its log.

Numbers are named as by the reference controller where it has them.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from ringleader.errors import RefusedError
from ringleader.kubernetes.mpijob.status import ConditionType

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

Trouble = Callable[[], str]
"""Says what is wrong; empty text where all is well."""


class Metrics:
    """The numbers of one controller, in a separate registry."""

    def __init__(self) -> None:
        """Start at zero."""
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"mpi_operator_jobs_{name}_total", text, registry=registry)

        def gauge(name: str, text: str, labels: Iterable[str] = ()) -> Gauge:
            return Gauge(f"mpi_operator_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, labels: Iterable[str] = ()) -> Histogram:
            return Histogram(f"mpi_operator_{name}", text, labels, buckets=_SECONDS, registry=registry)

        self._conditions = {
            ConditionType.CREATED: counter("created", "MPIJobs taken up"),
            ConditionType.SUCCEEDED: counter("successful", "MPIJobs that succeeded"),
            ConditionType.FAILED: counter("failed", "MPIJobs that failed"),
            ConditionType.RESTARTING: counter("restarted", "Times that an MPIJob began to restart"),
        }
        self._info = gauge("job_info", "One for each MPIJob", ("launcher", "namespace"))
        self.leader = gauge("is_leader", "1 in the process that leads")
        self.queued = gauge("queue_jobs", "Jobs that wait for a look")
        self.at_work = gauge("queue_jobs_at_work", "Jobs looked at now")
        self.passes = histogram("pass_seconds", "Length of a pass over a job", ("result",))
        self.decisions = histogram("decide_seconds", "Time to decide on a job")
        self._requests = histogram(
            "api_request_seconds", "Requests to the API server", ("verb", "resource", "code")
        )

    def conditions(self, before: Iterable[str], after: Iterable[str]) -> None:
        """Count what a write of a job's status made true: the types of the conditions that hold."""
        for type_ in set(after) - set(before):
            if type_ in self._conditions:
                self._conditions[ConditionType(type_)].inc()

    def requested(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Count a request to the API server."""
        self._requests.labels(verb, resource, code).observe(seconds)

    def job(self, namespace: str, launcher: str, *, is_gone: bool = False) -> None:
        """Show a job, or show it no longer."""
        if is_gone:
            with suppress(KeyError):
                self._info.remove(launcher, namespace)
        else:
            self._info.labels(launcher, namespace).set(1)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)


def true_conditions(status: Mapping[str, object]) -> list[str]:
    """Return the types of the conditions that hold in a status as the server stores it."""
    conditions = status.get("conditions")
    found = conditions if isinstance(conditions, list | tuple) else ()
    return [one["type"] for one in found if one.get("status") == "True"]


class ProbeServer:
    """Answers /healthz, /readyz and /metrics over HTTP until it is stopped."""

    def __init__(self, *, is_healthy: Trouble, is_ready: Trouble, metrics: Metrics) -> None:
        """``is_healthy`` and ``is_ready`` are called at every request."""
        self._metrics = metrics
        app = web.Application()
        app.router.add_get("/healthz", _answer(is_healthy))
        app.router.add_get("/readyz", _answer(is_ready))
        app.router.add_get("/metrics", self._numbers)
        self._runner = web.AppRunner(app, access_log=None)
        self.port = 0
        """The port that is listened on, once started."""

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0: any free one. Raises RefusedError where the port cannot be had."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, shutdown_timeout=1.0).start()
        except OSError as error:
            what = f"cannot listen on port {port}: {error.strerror or error}"
            raise RefusedError(what, where="--port") from None
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    async def _numbers(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})


def _answer(trouble: Trouble) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        what = trouble()
        return web.Response(text=what or "ok", status=503 if what else 200)

    return answer


_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class LogFormatter(logging.Formatter):
    """``{"time": …, "level": …, "message": …}`` for machines, or ``TIME LEVEL MESSAGE key=value …``."""

    def __init__(self, *, is_json: bool) -> None:
        """One JSON object each, or one plain line each."""
        super().__init__()
        self._is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line with whatever else it was given."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time.replace("+00:00", "Z"), "level": record.levelname.lower()}
        fields = {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self._is_json:
            more = {"exception": trace} if trace else {}
            whole = {**line, "message": record.getMessage(), **fields, **more}
            return json.dumps(whole, ensure_ascii=False, default=str)
        shown = "".join(f" {key}={value}" for key, value in fields.items())
        text = f"{line['time']} {line['level']:7} {record.getMessage()}{shown}"
        return f"{text}\n{trace}" if trace else text


def log_to_standard_error(form: Literal["json", "text"], level: str) -> None:
    """Send what Ringleader logs to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter(is_json=form == "json"))
    logger = logging.getLogger("ringleader")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
