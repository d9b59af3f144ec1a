"""Reports and answers of ranks in a launcher's log and over their pipes, in pieces of any size."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringleader.agents.training_progress import rank_in_pod
from ringleader.bench.scale.meter import LONGEST_LINE, LauncherLog, report_in
from ringleader.launch.rank_answer import JobListener, parts_of, send


class Heard:
    def __init__(self):
        self.lines = []
        self.reports = []

    def output(self, rank, stream, line):
        self.lines.append(line)

    def report(self, rank, message):
        self.reports.append((rank, message))


def test_report_in():
    for text, found in (
        ('ringleader-report 3 {"kind": "progress"}', (3, {"kind": "progress"})),
        ('[1,3]<stdout>:ringleader-report 3 {"a": 1}\r', (3, {"a": 1})),
        ("ringleader-report 3 {'a': 1}", None),
        ("ringleader-report x {}", None),
        ('ringleader-report 3 {"a": 1} and more', None),
        ("ringleader-report 1 " + "{" * 5000 + "}", None),
    ):
        assert report_in(text) == found


@given(st.lists(st.integers(min_value=1, max_value=40), max_size=20))
@settings(max_examples=30)
def test_a_log_in_pieces_is_the_same_log(cuts):
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


def test_a_log_without_an_end_of_line_does_not_fill_the_memory():
    heard = Heard()
    log = LauncherLog(heard, ranks=1)
    for _ in range(10):
        log.feed(b"x" * LONGEST_LINE)
    log.feed(b"\nnext\n")
    assert [len(line) for line in heard.lines][1:] == [5]
    assert len(heard.lines[0]) <= 2 * LONGEST_LINE


def test_rank_in_pod():
    for environ, rank in (
        ({"RINGLEADER_REPORT_LINES": "1", "RANK": "3"}, "3"),
        ({"RINGLEADER_REPORT_LINES": "1", "RANK": "", "PMI_RANK": "2"}, "2"),
        ({"RINGLEADER_REPORT_LINES": "1"}, ""),
        ({"RINGLEADER_REPORT_LINES": "1", "RANK": "a b"}, ""),
        ({"RANK": "3"}, ""),
    ):
        assert rank_in_pod(environ) == rank


def test_answers_of_any_length_come_whole_and_by_rank():
    value = {"text": 'ü"\\\n' * 3000, "numbers": list(range(50))}
    heard = []
    listener = JobListener(answered=lambda *words: heard.append(words))
    parts = {rank: parts_of("facts", [rank, value], size=1000) for rank in (0, 1)}
    for pair in zip(parts[0], parts[1], strict=True):  # as they arrive: one rank's between another's
        for rank, part in enumerate(pair):
            listener.report(rank, json.loads(json.dumps(part)))
    assert len(parts[0]) > 3
    assert listener.named("facts") == {0: [0, value], 1: [1, value]} and listener.named("x") == {}
    assert [words[:2] for words in heard] == [(0, "facts"), (1, "facts")]


def test_the_end_of_the_output_and_warnings_are_kept():
    listener = JobListener()
    for number in range(30):
        listener.output(1, "stderr", f"line {number}\n".encode())
    listener.warning("h1 is slow")
    assert listener.tail(1)[-1] == "line 29" and len(listener.tail(1)) == 20 and listener.tail(0) == ()
    assert listener.warnings == ["h1 is slow"]


def test_a_rank_sends_over_its_report_pipe():
    reads, writes = os.pipe()
    try:
        send("speed", {"seconds": 1.5}, environ={"RINGLEADER_REPORT_FD": str(writes)})
        listener = JobListener()
        listener.report(0, json.loads(os.read(reads, 65536)))
    finally:
        os.close(reads)
        os.close(writes)
    assert listener.named("speed") == {0: {"seconds": 1.5}}
    with pytest.raises(RuntimeError, match="no launcher"):
        send("speed", 1, environ={})


def test_what_is_no_answer_is_left_out():
    listener = JobListener()
    for message in (
        {"kind": "progress", "samples": 1},
        {"kind": "answer", "name": "facts"},
        {"kind": "answer", "name": "facts", "text": "{", "last": True},
        {"kind": "answer", "name": 3, "text": "{}", "last": True},
    ):
        listener.report(0, message)
        assert listener.answers == {}
