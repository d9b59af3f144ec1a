"""Timelines of real jobs: what Horovod's scripts find in them, and when buckets travel."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch]
Span = tuple[str, float, float]


def spans(path: Path) -> dict[str, list[Span]]:
    events = json.loads(path.read_text())
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found: dict[str, list[Span]] = defaultdict(list)
    open_ones: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[names[event["tid"]]].append((event["name"], event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "B":
            open_ones[event["tid"]].append((event["name"], event["ts"]))
        elif event["ph"] == "E":
            name, begin = open_ones[event["tid"]].pop()
            found[names[event["tid"]]].append((name, begin, event["ts"]))
    return found


@pytest.mark.parametrize("ranks", [1, 2])
def test_horovods_calls_and_words(jobs: Any, tmp_path: Path, ranks: int) -> None:
    jobs("timeline.py", str(tmp_path), ranks=ranks).passed(ranks)
    words = {name for name, *_ in spans(tmp_path / "whole.0.json")["allreduce.test_allreduce"]}
    assert {"NEGOTIATE_ALLREDUCE", "WAIT_FOR_RANKS", "ALLREDUCE"} < words


def test_several_hosts_show_both_levels(jobs: Any, tmp_path: Path) -> None:
    jobs("timeline.py", str(tmp_path), ranks=4, RINGLEADER_RANKS_PER_HOST="2").passed(4)
    for name, prefix in (("whole", "allreduce.one."), ("training", "gradients.")):
        lines = spans(tmp_path / f"{name}.0.json")
        reductions = [line for label, line in lines.items() if label.startswith(prefix)]
        assert reductions
        for line in reductions:
            whole = [span for span in line if span[0] == "ALLREDUCE"]
            for level in ("WINDOW_REDUCE", "CROSS_ALLREDUCE"):
                inner = [span for span in line if span[0] == level]
                assert inner, (prefix, level, line)
                assert all(any(a <= i and j <= b for _, a, b in whole) for _, i, j in inner)


def test_a_bucket_is_on_the_wire_before_backward_ends(jobs: Any, tmp_path: Path) -> None:
    jobs("timeline.py", str(tmp_path), ranks=2, RINGLEADER_RANKS_PER_HOST="1").passed(2)
    lines = spans(tmp_path / "training.0.json")
    assert {"STEP", "BACKWARD", "EXCHANGE"} <= {name for name, *_ in lines["training"]}
    first, last = max((begin, end) for name, begin, end in lines["training"] if name == "BACKWARD")
    buckets = [line for name, line in lines.items() if name.startswith("gradients.")]
    assert len(buckets) > 1
    mpi_calls = [(begin, end) for line in buckets for name, begin, end in line if name == "ALLREDUCE"]
    assert any(first < begin < end < last for begin, end in mpi_calls)
