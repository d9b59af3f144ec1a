"""Files that are no stored run are refused with the place of the fault."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

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
from ringleader.measurements.run_kinds import AnyRun
from ringleader.measurements.training import TrainingRun
from ringleader.scaling import Run


def faults(path: Path) -> list[str]:
    with pytest.raises(RequestError) as caught:
        run_file.read(path)
    return [str(fault).replace(str(path), "FILE") for fault in caught.value.faults]


def test_text_that_is_no_run(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    assert "there is no stored run here" in faults(tmp_path)[0]
    for text, said in (
        ('{\n  "schema": 1,\n  "name": oops\n}', "FILE:3:11: is not JSON: Expecting value"),
        ("", "FILE:1:1: is not JSON: Expecting value"),
        ('{"schema": true}', "FILE: is not a stored run: it has no schema number"),
        ('{"schema": 99}', "FILE: has schema 99; this version of Ringleader reads schema 1"),
        ('{"schema": 1, "kind": "x"}', "FILE: has the kind 'x'"),
        ("[" * 100_000, "FILE: cannot be read: it is nested too deep"),
    ):
        file.write_text(text)
        assert faults(file)[0].splitlines()[0].startswith(said)
    file.write_bytes(b'{"name": "\xe9"}')
    assert faults(file) == ["FILE: is not UTF-8 text"]


def test_every_wrong_field_is_named(tmp_path: Path, run: Run) -> None:
    file, whole = tmp_path / "run.json", json.dumps(run_file.to_document(run))
    document: dict[str, Any] = json.loads(whole)
    document["repeats"] = "three"
    del document["context"]["command"]
    document["points"][1]["samples"][2]["rate"] = None
    document["points"][2]["samples"][2]["rate"] = float("nan")
    document["points"][3]["slots"] = 1.5
    document["points"][0]["uncoupled"] = {}
    document["something new"] = 1
    file.write_text(json.dumps(document))
    assert faults(file) == [
        "FILE: context.command: is missing",
        "FILE: points[0].uncoupled: {} is not a list",
        "FILE: points[1].samples[2].rate: None is not a number",
        "FILE: points[2].samples[2].rate: nan is not a number",
        "FILE: points[3].slots: 1.5 is not an integer",
        "FILE: repeats: 'three' is not an integer",
    ]
    document = json.loads(whole)
    document["points"][0]["samples"][1]["rate"] = 0
    document["points"][2]["hosts"] = 0
    file.write_text(json.dumps(document))
    assert faults(file) == [
        "FILE: points[0].samples[1].rate: 0.0 is not a rate: it must be above 0",
        "FILE: points[2]: 0x2 has no rank",
    ]


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


def test_values_of_the_other_kinds_that_cannot_be(
    pairs: PointToPointRun, collective: CollectiveRun, training: TrainingRun
) -> None:
    def told(run: AnyRun) -> list[str]:
        try:
            run_file.from_document(json.loads(json.dumps(run_file.to_document(run))), "F")
        except RequestError as error:
            return [str(fault) for fault in error.faults]
        return []

    assert told(pairs) == told(collective) == told(training) == []
    bad = replace(pairs.transfers[0], target=4, rate=0.0, latency=-1.0)
    assert told(replace(pairs, transfers=(bad,))) == [
        "F: transfers[0].latency: -1.0 is not a time: it must be above 0",
        "F: transfers[0].rate: 0.0 is not a rate: it must be above 0",
        "F: transfers[0].target: 4 is not the number of one of 4 places",
    ]
    wrong = replace(
        collective.series[0], results=(CollectiveResult(size=8, count=2, in_place=Timing(seconds=0)),)
    )
    assert told(replace(collective, ranks=0, series=(wrong,))) == [
        "F: ranks: 0 ranks cannot be",
        "F: series[0].results[0].in_place.seconds: 0.0 is not a time: it must be above 0",
    ]
    assert told(replace(training, ranks=0, arms=(replace(training.arms[0], rates=(1.0, -2.0)),))) == [
        "F: ranks: 0 ranks cannot be",
        "F: arms[0].rates[1]: -2.0 is not a rate: it must be above 0",
    ]


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
