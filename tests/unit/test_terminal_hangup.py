"""SIGHUP to an elastic job: it ends where its terminal has closed, or its hosts do not change."""

import subprocess
import sys
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest

from ringleader.launch import signals
from ringleader.launch.elastic.elastic_session import ElasticJob
from ringleader.launch.supervision.session import Session

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
def test_only_a_terminal_that_is_gone_has_closed() -> None:
    words = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.stdout.split() == ["False", "True", "False", "True"], done.stderr


@pytest.mark.parametrize(
    ("closed", "changing", "ends"), [(False, True, False), (True, True, True), (False, False, True)]
)
def test_a_hangup(monkeypatch: pytest.MonkeyPatch, closed: bool, changing: bool, ends: bool) -> None:
    told: list[str] = []
    ended: list[int] = []
    monkeypatch.setattr(Session, "signal", lambda job, number: ended.append(number))
    monkeypatch.setattr(signals, "terminal_closed", lambda before: closed)
    job: Any = object.__new__(ElasticJob)
    job._terminal, job.listener = True, SimpleNamespace(warning=told.append)
    job._offers = SimpleNamespace(refresh=lambda: changing, source="hosts.txt")
    job.signal(signals.signal.SIGHUP)
    assert bool(ended) is ends
    assert told == ([] if ends else ["SIGHUP: hosts.txt is probed for hosts now"])
