"""Reports of ranks in a launcher's log, in pieces of any size."""

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringleader.agents.training_progress import rank_in_pod
from ringleader.bench.scale.meter import LONGEST_LINE, LauncherLog, report_in


class Heard:
    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.reports: list[tuple[int, dict[str, Any]]] = []

    def output(self, rank: int, stream: str, line: bytes) -> None:
        self.lines.append(line)

    def report(self, rank: int, message: dict[str, Any]) -> None:
        self.reports.append((rank, message))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('ringleader-report 3 {"kind": "progress"}', (3, {"kind": "progress"})),
        ('[1,3]<stdout>:ringleader-report 3 {"a": 1}\r', (3, {"a": 1})),
        ('loss 0.3 ringleader-report 0 {"a": {"b": 2}}', (0, {"a": {"b": 2}})),
        ("ringleader-report 3 {", None),
        ("ringleader-report 3 {'a': 1}", None),
        ("ringleader-report x {}", None),
        ('ringleader-report 3 {"a": 1} and more', None),
        ("total images/sec: 12.0", None),
        ("ringleader-report 1 " + "{" * 5000 + "}", None),
    ],
)
def test_report_in(text: str, found: tuple[int, dict[str, Any]] | None) -> None:
    assert report_in(text) == found


@given(st.lists(st.integers(min_value=1, max_value=40), max_size=20))
@settings(max_examples=30)
def test_a_log_in_pieces_is_the_same_log(cuts: list[int]) -> None:
    text = b'one\nringleader-report 1 {"samples": 5}\ntwo\nringleader-report 9 {"samples": 5}\nlast'
    heard, rest = Heard(), text
    log = LauncherLog(heard, ranks=2)
    for size in cuts:
        log.feed(rest[:size])
        rest = rest[size:]
    log.feed(rest)
    log.end()
    assert heard.lines == [b"one\n", b"two\n", b"last\n"]
    assert heard.reports == [(1, {"samples": 5})], "rank 9 is none of the job's two"


def test_a_log_without_an_end_of_line_does_not_fill_the_memory() -> None:
    heard = Heard()
    log = LauncherLog(heard, ranks=1)
    for _ in range(10):
        log.feed(b"x" * LONGEST_LINE)
    log.feed(b"\nnext\n")
    assert [len(line) for line in heard.lines][1:] == [5]
    assert len(heard.lines[0]) <= 2 * LONGEST_LINE


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({"RINGLEADER_REPORT_LINES": "1", "RANK": "3"}, "3"),
        ({"RINGLEADER_REPORT_LINES": "1", "RANK": "", "PMI_RANK": "2"}, "2"),
        ({"RINGLEADER_REPORT_LINES": "1"}, ""),
        ({"RINGLEADER_REPORT_LINES": "1", "RANK": "a b"}, ""),
        ({"RANK": "3"}, ""),
    ],
)
def test_rank_in_pod(environ: dict[str, str], rank: str) -> None:
    assert rank_in_pod(environ) == rank


@pytest.mark.process
def test_a_script_in_a_pod_prints_its_reports() -> None:
    script = "import ringleader; print('loss', end=' ', flush=True); ringleader.progress(samples=32)"
    environ = {**os.environ, "RINGLEADER_REPORT_LINES": "1", "RANK": "2"}
    environ.pop("RINGLEADER_REPORT_FD", None)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environ, timeout=60)
    heard = Heard()
    log = LauncherLog(heard, ranks=4)
    log.feed(done.stdout)
    (_, context), (rank, progress) = heard.reports
    assert context["kind"] == "context" and rank == 2
    assert (progress["samples"], progress["steps"]) == (32, 1)
