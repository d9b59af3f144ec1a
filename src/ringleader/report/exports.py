"""A recorded run for other programs: Perfetto, Prometheus, OpenTelemetry, TensorBoard, MLflow.

Each is written by its own library, which is imported when it is asked for alone. What is written are the
series of `report.recorded_job`; in a trace the steps of ranks, too.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ringleader import __version__
from ringleader.errors import RefusedError
from ringleader.measurements.recorded_job import JobRun, sums_of
from ringleader.report.recorded_job import NUMBERS, Series, series

MOST_METRICS = 1000
"""Values that MLflow takes at once."""


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
    parts = [one.name, *filter(None, one.labels.values())]
    return "/".join(re.sub(r"[^\w. :-]", "_", part) for part in parts)


def trace(run: JobRun) -> str:
    """Return a Chrome trace (JSON), which Perfetto opens: steps of each rank, events, series as counters."""
    found: list[dict[str, Any]] = []
    hosts = ["job", *dict.fromkeys(host for life in run.starts for host in life.hosts)]

    def add(kind: str, name: str, at: float, host: str = "job", rank: int = 0, **more: Any) -> None:
        pid = hosts.index(host) if host in hosts else 0
        found.append({"ph": kind, "name": name, "pid": pid, "tid": rank, "ts": 1e6 * at, **more})

    for host in hosts:
        add("M", "process_name", 0.0, host, args={"name": host})
    ends: dict[int, float] = defaultdict(float)
    for life, lines in run.lives:
        for rank, host in enumerate(life.hosts):
            add("M", "thread_name", 0.0, host, rank, args={"name": f"rank {rank}"})
        for line in lines:
            for rank, sums in sums_of([line]).items():
                steps, seconds = sums["timed"], sums["seconds"]
                begin = max(ends[rank], line.at - seconds)
                ends[rank] = line.at
                if seconds > 0 and rank < len(life.hosts):
                    args = {"steps": steps, "mean step (ms)": 1e3 * seconds / max(1, steps)}
                    dur = 1e6 * (line.at - begin)
                    add("X", f"{steps:g} steps", begin, life.hosts[rank], rank, dur=dur, args=args)
    for event in run.events:
        add("i", event.kind, event.at, s="g", args={"who": event.who, "why": event.why})
    for one in series(run):
        name = " ".join([one.name, *(text for label, text in one.labels.items() if label != "host")])
        for at, value in () if "rank" in one.labels else one.points:
            add("C", name, at, one.labels.get("host", "job"), args={"value": value})
    return json.dumps({"traceEvents": found, "displayTimeUnit": "ms"}, separators=(",", ":")) + "\n"


def prometheus(run: JobRun) -> str:
    """Return the last value of each series as Prometheus' text, for node_exporter's textfile collector."""
    with _from("prometheus"):
        from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    known: dict[str, Any] = {}
    for one in series(run):
        labels = {"run": run.name, **one.labels}
        if one.name not in known:
            name, about = f"ringleader_{one.name}", NUMBERS[one.name].about
            known[one.name] = Gauge(name, about, list(labels), registry=registry)
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
    points: dict[str, list[Any]] = defaultdict(list)
    for one in series(run):
        points[one.name] += [
            export.NumberDataPoint(one.labels, round(1e9 * began), round(1e9 * (began + at)), value)
            for at, value in one.points
        ]
    metrics = [
        export.Metric(
            name=f"ringleader.{name}",
            description=NUMBERS[name].about,
            unit=NUMBERS[name].unit or f"{{{run.unit}}}/s",
            data=export.Gauge(data_points=some),
        )
        for name, some in points.items()
    ]
    scope = export.ScopeMetrics(InstrumentationScope("ringleader", __version__), metrics, "")
    resource = Resource({"service.name": "ringleader", "service.instance.id": run.name})
    data = export.MetricsData([export.ResourceMetrics(resource, [scope], "")])
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
    known = {"command": " ".join(run.context.command), "ranks": run.ranks, "transport": run.context.transport}
    for name, text in known.items():
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


TEXTS: Mapping[str, Callable[[JobRun], str]] = {
    "trace": trace,
    "prometheus": prometheus,
    "opentelemetry": opentelemetry,
}
DIRECTORIES: Mapping[str, Callable[[JobRun, Path], None]] = {"tensorboard": tensorboard, "mlflow": mlflow}
"""Values of ``--format`` → what writes a file, or into a directory."""
