"""Files that are no stored run are refused with the place of the fault."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import transcripts
from tests.report.test_recorded_job import outcome

from ringleader.bench import run_file
from ringleader.errors import RequestError
from ringleader.measurements.collective import (
    CollectiveResult,
    CollectiveRun,
    CollectiveSeries,
    Timing,
    bus_limit,
)
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.training import TrainingRun
from ringleader.scaling import Run


def test_text_that_is_no_run(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    for text, said in (
        (b'{\n  "schema": 1,\n  "name": oops\n}', "run.json:3:11: is not JSON: Expecting value"),
        (b"", "run.json:1:1: is not JSON: Expecting value"),
        (b"[" * 100_000, "run.json: cannot be read: it is nested too deep"),
        (b'{"name": "\xe9"}', "run.json: is not UTF-8 text"),
    ):
        file.write_bytes(text)
        with pytest.raises(RequestError, match=said):
            run_file.read(file)


def changed(document: dict[str, Any], change: str) -> None:
    """``points.0.hosts=2`` sets a value, as JSON; without one it is taken away."""
    path, is_set, value = change.partition("=")
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place: Any = document
    for key in way:
        place = place[key]
    if is_set:
        place[last] = json.loads(value)
    else:
        del place[last]


def test_values_that_cannot_be(
    tmp_path: Path, run: Run, pairs: PointToPointRun, collective: CollectiveRun, training: TrainingRun
) -> None:
    kinds = {"run": run, "pairs": pairs, "collective": collective, "training": training}

    def call(kind: str, *changes: str) -> tuple[int, str, str]:
        document = outcome() if kind == "outcome" else run_file.to_document(kinds[kind])
        document = json.loads(json.dumps(document))
        for change in changes:
            changed(document, change)
        (tmp_path / "FILE").write_text(json.dumps(document))
        try:
            return 0, f"{run_file.read_any(tmp_path / 'FILE').ranks} ranks\n", ""
        except RequestError as error:
            return 2, "", f"{error}\n".replace(f"{tmp_path}/", "")

    transcripts.check("report/unreadable.txt", call)


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path, run: Run) -> None:
    run_file.write(run, tmp_path)
    with pytest.raises(ValueError, match="JSON"):
        run_file.write(replace(run, warmup=float("nan")), tmp_path)
    assert run_file.read(tmp_path) == run
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_other_kinds_come_back_and_are_no_scaling_runs(tmp_path: Path, collective: CollectiveRun) -> None:
    sizes = (
        CollectiveResult(size=8, count=2, out_of_place=Timing(seconds=1.0, wrong=3)),
        CollectiveResult(size=16, count=4, in_place=Timing(seconds=1.0)),
    )
    run = replace(collective, series=(CollectiveSeries(implementation="mpi", results=sizes),))
    run_file.write(run, tmp_path)
    assert run_file.read_any(tmp_path) == run and run.wrong == 3
    with pytest.raises(RequestError, match="holds a collective measurement, not a scaling run"):
        run_file.read(tmp_path)


def test_busbw_that_the_ports_allow() -> None:
    for operation, ranks, per_host, times in (
        ("allreduce", 4, 1, 1.0),
        ("allreduce", 4, 2, 1.5),
        ("allgather", 4, 2, 1.5),
        ("alltoall", 4, 2, 0.75),
        ("broadcast", 4, 2, 1.0),
        ("allreduce", 4, 4, None),
        ("allreduce", 4, 0, None),
        ("allreduce", 5, 2, None),
    ):
        limit = None if times is None else pytest.approx(10 * times)
        assert bus_limit(operation, ranks, per_host, 10.0) == limit
