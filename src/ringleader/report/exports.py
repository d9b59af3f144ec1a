"""A recorded run for other programs: Perfetto, Prometheus, OpenTelemetry, TensorBoard, MLflow.

Each is written by its own library, which is imported when it is asked for alone. What is written are the
series of `report.job`; in a trace the steps of ranks, too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ringleader import __version__
from ringleader.errors import RefusedError
from ringleader.measurements.job import JobRun
from ringleader.report.job import Series, series

MOST_METRICS = 1000
"""Values that MLflow takes at once."""
_UNITS = {
    "_bytes_per_second": "By/s",
    "_bytes": "By",
    "_seconds": "s",
    "_ratio": "1",
    "_watts": "W",
    "_hertz": "Hz",
}
"""End of a series' name → its unit (UCUM), as OpenTelemetry has it."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """One form."""

    text: Callable[[JobRun], str] | None = None
    """Returns what a file of it holds; ``None``: it is a directory."""
    write: Callable[[JobRun, Path], None] | None = None
    """Writes it into a directory."""


@contextmanager
def _from(extra: str) -> Iterator[None]:
    """Raise RefusedError, with the command that installs it, where a library is missing."""
    try:
        yield
    except ImportError as error:
        what = f"--format {extra} needs {error.name or 'a package'}, which is not installed"
        raise RefusedError(what, hint=f"pip install 'ringleader[{extra}]'") from None


def _began(run: JobRun) -> float:
    """Return the launch in Unix time; 0 where the record has no date."""
    try:
        date = datetime.fromisoformat(run.context.date)
    except ValueError:
        return 0.0
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _tag(one: Series) -> str:
    """``rank_step_seconds/3/h1``: a name for programs without labels."""
    parts = [one.name.removeprefix("ringleader_"), *(value for _name, value in one.labels if value)]
    return "/".join(re.sub(r"[^\w. :-]", "_", part) for part in parts)


def trace(run: JobRun) -> str:
    """Return a Chrome trace (JSON), which Perfetto opens: steps of each rank, events, series as counters."""
    hosts: dict[str, int] = {}
    found: list[dict[str, Any]] = []
    ends: dict[int, float] = {}

    def process(host: str) -> int:
        if host not in hosts:
            hosts[host] = len(hosts) + 1
            args = {"name": host or "job"}
            found.append({"ph": "M", "name": "process_name", "pid": hosts[host], "tid": 0, "args": args})
        return hosts[host]

    for life, lines in run.lives:
        for line in lines:
            for rank, steps, seconds in zip(line.ranks, line.steps, line.seconds, strict=False):
                begin = max(ends.get(rank, 0.0), line.at - seconds)
                ends[rank] = line.at
                host = life.hosts[rank] if rank < len(life.hosts) else ""
                place = {"pid": process(host), "tid": rank, "ts": 1e6 * begin, "dur": 1e6 * (line.at - begin)}
                args = {"steps": steps, "mean step (ms)": 1e3 * seconds / steps if steps else None}
                if seconds > 0:
                    found.append({"ph": "X", "name": f"{steps:g} steps", **place, "args": args})
    for rank, host in {(rank, host) for life, _ in run.lives for rank, host in enumerate(life.hosts)}:
        names = {"pid": process(host), "tid": rank, "args": {"name": f"rank {rank}"}}
        found.append({"ph": "M", "name": "thread_name", **names})
    for event in run.events:
        args = {"who": event.who, "why": event.why}
        place = {"pid": process(""), "tid": 0, "ts": 1e6 * event.at}
        found.append({"ph": "i", "s": "g", "name": event.kind, **place, "args": args})
    for one in series(run):
        labels = dict(one.labels)
        name = " ".join([one.name.removeprefix("ringleader_"), *(v for k, v in one.labels if k != "host")])
        for at, value in () if "rank" in labels else one.points:
            place = {"pid": process(labels.get("host", "")), "tid": 0, "ts": 1e6 * at}
            found.append({"ph": "C", "name": name, **place, "args": {"value": value}})
    return json.dumps({"traceEvents": found, "displayTimeUnit": "ms"}, separators=(",", ":")) + "\n"


def prometheus(run: JobRun) -> str:
    """Return the last value of each series as Prometheus' text, for node_exporter's textfile collector."""
    with _from("prometheus"):
        from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    known: dict[str, Any] = {}
    for one in series(run):
        if not one.points:
            continue
        labels = {"run": run.name, **dict(one.labels)}
        if one.name not in known:
            known[one.name] = Gauge(one.name, one.about, list(labels), registry=registry)
        known[one.name].labels(**labels).set(one.points[-1][1])
    return bytes(generate_latest(registry)).decode()


def opentelemetry(run: JobRun) -> str:
    """Return all series as a line of OTLP in JSON, as the collector's ``otlpjsonfile`` receiver reads it."""
    with _from("opentelemetry"):
        from google.protobuf.json_format import MessageToJson
        from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
        from opentelemetry.sdk.metrics import export
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    began = _began(run)
    points: dict[str, list[Any]] = {}
    first: dict[str, Series] = {}
    for one in series(run):
        first.setdefault(one.name, one)
        points.setdefault(one.name, []).extend(
            export.NumberDataPoint(
                attributes=dict(one.labels),
                start_time_unix_nano=round(1e9 * began),
                time_unix_nano=round(1e9 * (began + at)),
                value=value,
            )
            for at, value in one.points
        )
    metrics = [
        export.Metric(
            name=name.replace("_", ".", 1),
            description=first[name].about,
            unit=next((unit for end, unit in _UNITS.items() if name.endswith(end)), f"{{{run.unit}}}/s"),
            data=export.Gauge(data_points=some),
        )
        for name, some in points.items()
    ]
    scope = export.ScopeMetrics(
        scope=InstrumentationScope("ringleader", __version__), metrics=metrics, schema_url=""
    )
    resource = Resource({"service.name": "ringleader", "service.instance.id": run.name})
    data = export.MetricsData(
        resource_metrics=[export.ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url="")]
    )
    return str(MessageToJson(encode_metrics(data), indent=None, use_integers_for_enums=True)) + "\n"


def tensorboard(run: JobRun, directory: Path) -> None:
    """Write an event file of scalars; their step is the second since the launch."""
    with _from("tensorboard"):
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer, began = EventFileWriter(str(directory)), _began(run)
    for one in series(run):
        for at, value in one.points:
            summary = Summary(value=[Summary.Value(tag=_tag(one), simple_value=value)])
            writer.add_event(Event(wall_time=began + at, step=round(at), summary=summary))
    writer.close()


def mlflow(run: JobRun, directory: Path) -> None:
    """Write a run into MLflow's file store: the series as metrics, what it was run with as parameters."""
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 asks for it
    with _from("mlflow"):
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

    client, began = MlflowClient(tracking_uri=directory.resolve().as_uri()), _began(run)
    experiment = client.get_experiment_by_name("ringleader")
    found = client.create_experiment("ringleader") if experiment is None else experiment.experiment_id
    stored = client.create_run(found, start_time=round(1e3 * began), run_name=run.name).info.run_id
    context = run.context
    known = {
        "command": " ".join(context.command),
        "ranks": run.ranks,
        "hosts": ",".join(host.name for host in context.hosts),
        "python": context.python,
        "torch": context.torch,
        "mpi": context.mpi,
        "ringleader": context.ringleader,
        "transport": context.transport,
    }
    for name, text in known.items():
        if text:
            client.log_param(stored, name, str(text)[:500])
    metrics = [
        Metric(_tag(one), value, round(1e3 * (began + at)), round(at))
        for one in series(run)
        for at, value in one.points
    ]
    for at in range(0, len(metrics), MOST_METRICS):
        client.log_batch(stored, metrics=metrics[at : at + MOST_METRICS])
    status = "RUNNING" if run.is_running else "FAILED" if run.failure or run.ended is None else "FINISHED"
    client.set_terminated(stored, status, round(1e3 * (began + run.seconds)))


EXPORTS: Mapping[str, Export] = {
    "trace": Export(text=trace),
    "prometheus": Export(text=prometheus),
    "opentelemetry": Export(text=opentelemetry),
    "tensorboard": Export(write=tensorboard),
    "mlflow": Export(write=mlflow),
}
"""Value of ``--format`` → what it writes."""
