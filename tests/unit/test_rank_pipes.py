"""A rank's pipes as its agent has them: output goes as far as the launcher grants it."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from ringleader.agents import protocol
from ringleader.agents.rank_pipes import RankPipes


class Launcher:
    """Takes frames; nothing waits."""

    pending = 0

    def __init__(self) -> None:
        self.output = b""
        self.words: list[dict[str, Any]] = []

    def add(self, frame: bytes) -> None:
        kind, payload = frame[4], frame[5:]
        if kind == protocol.MESSAGE:
            self.words.append(protocol.read_message(payload))
        else:
            self.output += payload

    def say(self, **words: Any) -> None:
        self.words.append(words)


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


@pytest.fixture
def pipes(launcher: Launcher) -> Iterator[RankPipes]:
    connection: Any = launcher
    made = RankPipes(connection)
    yield made
    made.give_up()


def serve(pipes: RankPipes) -> None:
    """Read once whatever the agent would poll for."""
    for fd, events in pipes.interests():
        pipes.serve(fd, events)


def test_no_more_is_read_than_was_granted(launcher: Launcher, pipes: RankPipes) -> None:
    _, out, err, report = pipes.make(with_input=False, window=8)
    os.write(out, b"12345678")
    serve(pipes)
    assert launcher.output == b"12345678" and pipes.held
    os.write(out, b"more")
    os.write(report, b'{"kind": "step"}\n')
    serve(pipes)
    assert launcher.output == b"12345678", "it waits in the pipe, as for any slow reader"
    assert launcher.words == [{"do": "report", "report": {"kind": "step"}}], "what a rank reports does not"
    pipes.allow(8)
    serve(pipes)
    assert launcher.output == b"12345678more" and not pipes.held
    assert len({out, err, report}) == 3
    pipes.close_far_ends()
    serve(pipes)
    assert pipes.drained


def test_nothing_is_left_open(launcher: Launcher) -> None:
    before = os.listdir("/proc/self/fd")
    connection: Any = launcher
    pipes = RankPipes(connection)
    pipes.make(with_input=True, window=100)
    pipes.close_far_ends()
    serve(pipes)
    pipes.end_input()
    assert pipes.drained and os.listdir("/proc/self/fd") == before
