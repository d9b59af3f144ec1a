"""What ranks of doctor's jobs answer, and the listener that keeps it."""

import json
import os

import pytest

from ringleader.launch.rank_answer import JobListener, parts_of, send


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


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "progress", "samples": 1},
        {"kind": "answer", "name": "facts"},
        {"kind": "answer", "name": "facts", "text": "{", "last": True},
        {"kind": "answer", "name": 3, "text": "{}", "last": True},
    ],
)
def test_what_is_no_answer_is_left_out(message):
    listener = JobListener()
    listener.report(0, message)
    assert listener.answers == {}


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
