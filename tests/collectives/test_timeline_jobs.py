"""Timelines of real jobs: what Horovod's scripts find in them, and that their phases are nested."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest


def load(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())


def spans(events: list[dict[str, Any]]) -> dict[str, list[tuple[str, float, float]]]:
    """Return name, begin and end of the phases of each line, by the line's name; open ones have no end."""
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    open_ones: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[names[event["tid"]]].append((event["name"], event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "B":
            open_ones[event["tid"]].append((event["name"], event["ts"]))
        elif event["ph"] == "E":
            name, begin = open_ones[event["tid"]].pop()
            assert name == event["name"]
            found[names[event["tid"]]].append((name, begin, event["ts"]))
    return found


def check_nesting(line: list[tuple[str, float, float]]) -> None:
    """Assert that of two phases on a line one is in the other, or one ends before the other begins."""
    ends: list[float] = []
    for _name, begin, end in sorted(line, key=lambda span: (span[1], -span[2])):
        while ends and ends[-1] <= begin:
            ends.pop()
        assert not ends or end <= ends[-1]
        ends.append(end)


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.parametrize("ranks", [1, 2])
def test_horovods_calls_and_words(jobs: Any, tmp_path: Path, ranks: int) -> None:
    jobs("timeline.py", str(tmp_path), ranks=ranks).passed(ranks)
    for rank in range(ranks):
        for name in ("whole", "training"):
            lines = spans(load(tmp_path / f"{name}.{rank}.json"))
            for line in lines.values():
                check_nesting(line)
    words = {name for name, *_ in spans(load(tmp_path / "whole.0.json"))["allreduce.test_allreduce"]}
    assert {"NEGOTIATE_ALLREDUCE", "WAIT_FOR_RANKS", "ALLREDUCE"} < words


@pytest.mark.mpi
@pytest.mark.torch
def test_several_hosts_show_both_levels(jobs: Any, tmp_path: Path) -> None:
    jobs("timeline.py", str(tmp_path), ranks=4, RINGLEADER_RANKS_PER_HOST="2").passed(4)
    for name, prefixes in (("whole", ["allreduce.test_", "allreduce.one."]), ("training", ["gradients."])):
        lines = spans(load(tmp_path / f"{name}.0.json"))
        for prefix in prefixes:
            reductions = [line for label, line in lines.items() if label.startswith(prefix)]
            assert reductions
            for line in reductions:
                check_nesting(line)
                whole = [span for span in line if span[0] == "ALLREDUCE"]
                for level in ("WINDOW_REDUCE", "CROSS_ALLREDUCE"):
                    inner = [span for span in line if span[0] == level]
                    assert inner, (prefix, level, line)
                    assert all(any(a <= i and j <= b for _, a, b in whole) for _, i, j in inner)


@pytest.mark.mpi
@pytest.mark.torch
def test_a_bucket_is_on_the_wire_before_backward_ends(jobs: Any, tmp_path: Path) -> None:
    jobs("timeline.py", str(tmp_path), ranks=2, RINGLEADER_RANKS_PER_HOST="1").passed(2)
    lines = spans(load(tmp_path / "training.0.json"))
    assert {"STEP", "BACKWARD", "EXCHANGE"} <= {name for name, *_ in lines["training"]}
    backwards = [(begin, end) for name, begin, end in lines["training"] if name == "BACKWARD"]
    buckets = [line for name, line in lines.items() if name.startswith("gradients.")]
    assert len(buckets) > 1
    first, last = max(backwards)
    mpi_calls = [(begin, end) for line in buckets for name, begin, end in line if name == "ALLREDUCE"]
    assert any(first < begin < end < last for begin, end in mpi_calls)
