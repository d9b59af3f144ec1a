"""A recorded run in the forms of other programs, read back by their own libraries."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from tests.report.conftest import Call
from tests.report.recorded import trained

from ringleader.measurements.recorded_job import JobRun
from ringleader.report import exports

LAUNCH = 1767323045.0
"""The date of the run in Unix time."""


@pytest.fixture
def recorded(tmp_path: Path) -> JobRun:
    return trained(tmp_path / "run-1")


def test_a_trace_has_the_steps_of_ranks_events_and_counters(
    call: Call, recorded: JobRun, tmp_path: Path
) -> None:
    assert call("report run-1 --format trace -o trace.json") == (0, "", "")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    steps = [one for one in events if one["ph"] == "X"]
    assert {(one["pid"], one["tid"]) for one in steps} == {(1, 0), (2, 1)}
    for rank in (0, 1):
        ours = [one for one in steps if one["tid"] == rank]
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1 for a, b in pairwise(ours)), "none overlaps"
        assert all(one["args"]["mean step (ms)"] == pytest.approx(250) for one in ours)
    names = {one["args"]["name"] for one in events if one["ph"] == "M"}
    assert names == {"h1", "h2", "job", "rank 0", "rank 1"}
    counters = {"rate", "step_seconds 0.99", "sent_bytes_per_second mlx5_0/1", "gpu_power_watts 0"}
    assert counters <= {one["name"] for one in events if one["ph"] == "C"}


def test_prometheus_reads_its_text(recorded: JobRun) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    text = exports.prometheus(recorded)
    found = {one.name: one for one in parser.text_string_to_metric_families(text)}
    (rate,) = found["ringleader_rate"].samples
    assert (rate.labels, rate.value) == ({"run": "run-1"}, pytest.approx(256.0))
    bytes_sent = found["ringleader_sent_bytes_per_second"]
    assert {one.labels["host"] for one in bytes_sent.samples} == {"h1", "h2"}
    assert found["ringleader_goodput_ratio"].samples[0].value == pytest.approx(0.95)


def test_the_collectors_form_is_read_by_its_protocol(recorded: JobRun) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.common")
    from google.protobuf.json_format import Parse
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    text = exports.opentelemetry(recorded)
    assert text.count("\n") == 1
    request = Parse(text, ExportMetricsServiceRequest())
    (resource,) = request.resource_metrics
    metrics = {one.name: one for one in resource.scope_metrics[0].metrics}
    assert metrics["ringleader.rate"].unit == "{samples}/s"
    assert metrics["ringleader.step_seconds"].unit == "s"
    points = metrics["ringleader.rate"].gauge.data_points
    assert points[5].as_double == pytest.approx(256.0)
    assert LAUNCH < points[0].time_unix_nano / 1e9 < points[-1].time_unix_nano / 1e9 < LAUNCH + 40


def test_tensorboard_reads_its_scalars(recorded: JobRun, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    exports.tensorboard(recorded, tmp_path / "board")
    found = EventAccumulator(str(tmp_path / "board"))
    found.Reload()
    tags = {"rate", "step_seconds/0.5", "rank_step_seconds/1/h2", "gpu_power_watts/h1/0"}
    assert tags <= set(found.Tags()["scalars"])
    rate = found.Scalars("rate")[5]
    assert rate.value == pytest.approx(256.0) and rate.wall_time == pytest.approx(LAUNCH + rate.step, abs=1)


def test_mlflow_reads_its_store(recorded: JobRun, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    exports.mlflow(recorded, tmp_path / "mlruns")
    exports.mlflow(recorded, tmp_path / "mlruns")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("ringleader")
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 2 and {one.info.run_name for one in runs} == {"run-1"}
    assert runs[0].data.params["ranks"] == "2" and runs[0].info.status == "FINISHED"
    history = client.get_metric_history(runs[0].info.run_id, "rate")
    assert history[5].value == pytest.approx(256.0)
    assert "sent_bytes_per_second/h1/mlx5_0_1" in runs[0].data.metrics


MISSING = """
import sys
for name in ("prometheus_client", "opentelemetry", "tensorboard", "mlflow"):
    sys.modules[name] = None
from ringleader.cli.main import main
main(["report", sys.argv[1], "--format", sys.argv[2], "-o", sys.argv[3]])
"""


@pytest.mark.parametrize("form", ["prometheus", "opentelemetry", "tensorboard", "mlflow"])
def test_a_missing_library_is_named_with_its_command(recorded: JobRun, tmp_path: Path, form: str) -> None:
    words = (str(tmp_path / "run-1"), form, str(tmp_path / "out"))
    done = subprocess.run([sys.executable, "-c", MISSING, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert f"--format {form} needs" in done.stderr and f"pip install 'ringleader[{form}]'" in done.stderr
