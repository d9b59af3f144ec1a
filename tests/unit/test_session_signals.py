"""What a session does with signals, ranks' output and traces, and its own standard input."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from ringleader.agents import protocol
from ringleader.launch import signals
from ringleader.launch.elastic.elastic_session import ElasticJob
from ringleader.launch.launch_job import _keep_traces
from ringleader.launch.rank_output import OutputFiles
from ringleader.launch.supervision.ranks import OutputFlow, RankState, StdinForwarding
from ringleader.launch.supervision.session import SAME_SECONDS, Session

TERM, INT = signal.SIGTERM, signal.SIGINT


@pytest.mark.parametrize(
    ("second", "after", "hurries"),
    [
        ((TERM, TERM), 0.0, False),  # the same one, from Slurm and from its script
        ((TERM, TERM), SAME_SECONDS + 0.1, True),
        ((TERM, INT), 0.0, True),
        ((INT, INT), 0.0, True),
    ],
)
def test_a_second_signal_hurries_unless_it_is_the_first_again(second, after, hurries):
    now, done = [5.0], []
    session = SimpleNamespace(
        is_stopping=False,
        _asked_at=float("-inf"),
        clock=lambda: now[0],
        stop_for=lambda cause: done.append("stop"),
        flow=SimpleNamespace(hurry=lambda: done.append("hurry")),
        send_stop=lambda grace: done.append(grace),
    )
    Session.signal(session, second[0])
    session.is_stopping, now[0] = True, now[0] + after
    Session.signal(session, second[1])
    assert done == (["stop", "hurry", 0.0] if hurries else ["stop"])
    session._asked_at, done[:] = float("-inf"), []
    Session.signal(session, TERM)
    assert done == ["hurry", 0.0], "of a job that ends already"


PROGRAM = """
    import fcntl, os, resource, signal, sys, termios
    from ringleader.launch.signals import has_terminal, terminal_closed

    os.setsid()
    print(has_terminal(), flush=True)
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    print(before := has_terminal(), flush=True)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(master, slave) + 1, limits[1]))
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        print(terminal_closed(before), flush=True)  # no descriptor is free
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    signal.signal(signal.SIGHUP, lambda *_: print(terminal_closed(before), flush=True))
    os.close(master)
    signal.sigtimedwait((), 0.5)
"""


@pytest.mark.process
def test_only_a_terminal_that_is_gone_has_closed():
    words = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.stdout.split() == ["False", "True", "False", "True"], done.stderr


@pytest.mark.parametrize(
    ("closed", "changing", "ends"), [(False, True, False), (True, True, True), (False, False, True)]
)
def test_a_hangup(monkeypatch, closed, changing, ends):
    told = []
    ended = []
    monkeypatch.setattr(Session, "signal", lambda job, number: ended.append(number))
    monkeypatch.setattr(signals, "terminal_closed", lambda before: closed)
    job = object.__new__(ElasticJob)
    job._terminal, job.listener = True, SimpleNamespace(warning=told.append)
    job._offers = SimpleNamespace(refresh=lambda: changing, source="hosts.txt")
    job.signal(signals.signal.SIGHUP)
    assert bool(ended) is ends
    assert told == ([] if ends else ["SIGHUP: hosts.txt is probed for hosts now"])


class Job:
    def __init__(self, directory):
        self.directory = directory
        places = [SimpleNamespace(rank=rank) for rank in range(2)]
        host = SimpleNamespace()
        self.ranks = {place.rank: RankState(place=place, host=host) for place in places}
        self.warnings = []

    def sends(self, rank, *pieces):
        session = SimpleNamespace(
            ranks=self.ranks, job=SimpleNamespace(profile_dir=str(self.directory)), files=None
        )
        connection = SimpleNamespace(rank=rank)
        for piece in pieces:
            Session.frame(session, connection, protocol.BLOB, piece)

    def ends(self):
        listener = SimpleNamespace(warning=self.warnings.append)
        _keep_traces(self.directory, tuple(self.ranks.values()), listener)
        return {path.name: path.read_bytes() for path in self.directory.iterdir()}


def test_pieces_are_in_a_file_and_not_in_memory(tmp_path):
    job = Job(tmp_path)
    (tmp_path / "rank-0.json.gz.part").write_bytes(b"of a start before this one")
    (tmp_path / "rank-7.json.gz.part").write_bytes(b"the same")
    job.sends(0, b"ab", b"cd")
    assert (tmp_path / "rank-0.json.gz.part").read_bytes() == b"abcd"
    assert job.ranks[0].result == b""
    assert (job.ends(), job.warnings) == ({"rank-0.json.gz": b"abcd"}, [])


def test_a_trace_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch):
    job = Job(tmp_path)
    job.sends(1, b"xy")
    job.sends(0, b"ab")
    opened = Path.open

    def fail(self, *words):
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "open", fail)
    job.sends(0, b"cd")
    monkeypatch.setattr(Path, "open", opened)
    job.sends(0, b"ef")
    assert job.ends() == {"rank-1.json.gz": b"xy"}
    (warning,) = job.warnings
    assert warning.endswith("the trace of rank 0 cannot be written: No space left on device")


class Reader:
    """A listener that has taken all but ``left`` bytes."""

    def __init__(self):
        self.left = 0

    def waiting(self):
        return self.left


class Rank:
    """As far as the flow looks at one."""

    to_grant, window = 0, protocol.window(500)


def test_bytes_are_granted_once_and_only_while_somebody_reads():
    granted = []
    reader = Reader()
    rank = Rank()
    flow = OutputFlow(reader, None, lambda _state, do, **words: granted.append(words["bytes"]))
    half = rank.window // 2
    flow.took(rank, half - 1)
    assert granted == [], "too few for a message"
    flow.took(rank, 1)
    flow.took(rank, half)
    assert granted == [half, half], "no byte twice: a rank would have more on its way than its window"
    reader.left = 1 << 30
    flow.took(rank, half)
    flow.tick()
    assert granted == [half, half] and flow.held == {rank}
    reader.left = 0
    flow.tick()
    assert granted == [half] * 3 and not flow.held


def test_the_files_of_output_hold_what_was_written_and_are_closed(tmp_path):
    before = os.listdir("/proc/self/fd")
    files = OutputFiles(str(tmp_path), 11)
    files.write(3, "stderr", b"one\n")
    files.write(3, "stderr", b"two")
    assert files.close() == ""
    assert os.listdir("/proc/self/fd") == before
    assert (tmp_path / "rank.03/stderr").read_bytes() == b"one\ntwo"
    assert len(list(tmp_path.glob("rank.*/std*"))) == 22


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def test_what_is_there_is_passed_on_when_it_is_asked_for(pipe):
    selector, server, agent = selectors.DefaultSelector(), mock.Mock(), mock.Mock()
    stdin = StdinForwarding(selector, server, pipe[0])
    os.write(pipe[1], b"for rank 0")
    assert not selector.get_map(), "nobody has asked"
    stdin.asked(agent)
    assert [key.data for key, _ in selector.select(1)] == [stdin.serve]
    stdin.serve(pipe[0])
    assert b"for rank 0" in server.send.call_args.args[1]
    assert not selector.get_map()


def test_rank_0_ends_in_the_turn_in_which_there_is_something_to_read(pipe):
    """One look finds both; the end is served first."""
    selector, server = selectors.DefaultSelector(), mock.Mock()
    stdin = StdinForwarding(selector, server, pipe[0])
    os.write(pipe[1], b"for the next")
    stdin.asked(mock.Mock())
    seen = [(key.data, key.fd) for key, _ in selector.select(1)]
    stdin.close()
    for serve, fd in seen:
        serve(fd)
    server.send.assert_not_called()
    assert os.read(pipe[0], 100) == b"for the next", "it is left to whoever reads it next"


@pytest.mark.parametrize("text", [b"for rank 0", b""], ids=["a file", "an empty one"])
def test_a_file_is_read_without_a_wait_for_it(tmp_path, text):
    """epoll refuses it: there would always be something to read."""
    (tmp_path / "input").write_bytes(text)
    selector, server = selectors.DefaultSelector(), mock.Mock()
    with (tmp_path / "input").open("rb") as file:
        stdin = StdinForwarding(selector, server, file.fileno())
        stdin.asked(mock.Mock())
        if text:
            stdin.asked(mock.Mock())
        stdin.asked(mock.Mock())
        assert not selector.get_map()
    sent = [call.args[1] for call in server.send.call_args_list]
    assert sent[:-1] == ([protocol.frame(protocol.STDIN, text)] if text else [])
    assert sent[-1] == protocol.message(do="end_of_input"), "once"


def test_in_the_background_of_our_controlling_terminal_nothing_is_read_and_else_it_is():
    """A serial console, ``setsid``, ``docker run -t``: such a terminal has no background."""
    master, terminal = os.openpty()
    selector, server = selectors.DefaultSelector(), mock.Mock()
    try:
        stdin = StdinForwarding(selector, server, terminal)
        with mock.patch("os.tcgetpgrp", return_value=os.getpgrp() + 1):
            stdin.asked(mock.Mock())
        assert not selector.get_map()
        os.write(master, b"typed\n")
        stdin.asked(mock.Mock())
        assert [key.data for key, _ in selector.select(1)] == [stdin.serve]
        stdin.serve(terminal)
        assert b"typed" in server.send.call_args.args[1]
    finally:
        os.close(master)
        os.close(terminal)
