"""A running elastic job is asked for a look at its hosts: the launcher's socket, and who asks."""

from __future__ import annotations

import selectors
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringleader.cli.hosts import answer_text
from ringleader.elastic_options import ElasticOptions
from ringleader.errors import RefusedError, RequestError
from ringleader.job import Host
from ringleader.launch.elastic.host_answers import HostSourceError
from ringleader.launch.elastic.host_offers import HostOffers
from ringleader.launch.elastic.host_requests import HostRequests
from ringleader.launch.elastic.host_sources import FixedHosts, HostSource
from ringleader.launch.elastic.running_jobs import RunningJob, ask, chosen_job, running_jobs
from ringleader.ranks import rank_identity

H1, H2 = Host(name="h1", slots=1), Host(name="h2", slots=2)


class Source:
    """A source that is looked at only when somebody asks."""

    name, period = "prepared", 3600.0

    def __init__(self) -> None:
        self.hosts: tuple[Host, ...] | None = (H1,)

    def look(self, stop: int | None = None) -> tuple[Host, ...]:
        if self.hosts is None:
            raise HostSourceError("away")
        return self.hosts

    def close(self) -> None:
        pass


class Launcher:
    """As much of a launcher as serves requests, in a thread."""

    def __init__(self, path: Path, source: HostSource, about: dict[str, Any]) -> None:
        self.path = path
        self._selector = selectors.PollSelector()
        self.offers = HostOffers(source, source.look(), ElasticOptions())
        if (fd := self.offers.fileno()) is not None:
            self._selector.register(fd, selectors.EVENT_READ, lambda fd: None)
        self._requests = HostRequests(self._selector, str(path), self.offers, about)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            for key, _ in self._selector.select(0.05):
                key.data(key.fd)
            self.offers.news(0.0)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._requests.close()
        self.offers.close()
        self._selector.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of all jobs, and in it that of one job on this machine."""
    found = tmp_path / "jobs" / "abc123" / rank_identity.host_key(rank_identity.host_identity())
    found.mkdir(parents=True, mode=0o700)
    return found


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def launcher(directory: Path, source: Source) -> Iterator[Launcher]:
    about = {"job": "abc123", "pid": 7, "command": "python train.py"}
    running = Launcher(directory / "launcher.sock", source, about)
    yield running
    running.close()


def test_a_job_is_found_and_answers_what_the_look_found(launcher: Launcher, source: Source) -> None:
    (job,) = running_jobs(str(launcher.path.parents[2]))
    assert str(job) == "abc123: python train.py (process 7)"
    source.hosts = (H1, H2)
    answer = ask(job.path, "refresh", seconds=10)
    assert answer_text(answer) == "prepared names h1:1, h2:2 (+h2)"
    launcher.offers.exclude("h2")
    answer = ask(job.path, "refresh", seconds=10)
    words = "prepared names h1:1, h2:2 (nothing has changed); out after a failure: h2"
    assert answer_text(answer) == words
    source.hosts = None
    answer = ask(job.path, "refresh", seconds=10)
    assert "away" in answer["trouble"] and answer["hosts"] == [["h1", 1], ["h2", 2]]


def test_hosts_that_are_fixed_are_answered_at_once(directory: Path) -> None:
    running = Launcher(directory / "launcher.sock", FixedHosts(hosts=(H1,)), {})
    try:
        answer = ask(str(running.path), "refresh", seconds=10)
    finally:
        running.close()
    assert answer_text(answer) == "-H names h1:1 (nothing has changed)"


def test_what_is_no_request_and_what_has_ended_is_told(launcher: Launcher) -> None:
    with pytest.raises(ConnectionError, match="ended before it answered"):
        ask(str(launcher.path), "else", seconds=10)
    (launcher.path.parents[1] / "dead").mkdir()
    assert len(running_jobs(str(launcher.path.parents[2]))) == 1


@pytest.mark.process
@pytest.mark.root("become another user")
def test_another_user_is_not_answered(source: Source) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name, "launcher.sock")
        running = Launcher(path, source, {"job": "abc123"})
        try:
            Path(name).chmod(0o755)
            path.chmod(0o666)  # as if nothing else kept others away
            asks = (
                "import os, socket, sys\n"
                "if sys.argv[2] != '0': os.setuid(int(sys.argv[2]))\n"
                "sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                "sock.connect(sys.argv[1])\n"
                'try: sock.send(b\'{"do":"describe"}\'); print(len(sock.recv(999)))\n'
                "except OSError: print(0)\n"
            )
            said = [
                subprocess.run(
                    [sys.executable, "-c", asks, str(path), user], capture_output=True, text=True, timeout=20
                ).stdout
                for user in ("0", "65534")
            ]
        finally:
            running.close()
    assert said[0].strip() not in ("", "0") and said[1] == "0\n"


def test_several_jobs_are_named_and_one_is_chosen_by_the_beginning_of_its_name() -> None:
    one, two = (RunningJob(job=name, path="", pid=1, command="x") for name in ("ab1", "ab2"))
    assert chosen_job((one,), None) is one
    assert chosen_job((one, two), "ab2") is two
    with pytest.raises(RequestError, match=r"2 elastic jobs run:\n    ab1: x .*\n    ab2: x"):
        chosen_job((one, two), "ab")
    with pytest.raises(RequestError, match="no elastic job is named 'c'"):
        chosen_job((one, two), "c")
    with pytest.raises(RefusedError, match="no elastic job of yours"):
        chosen_job((), None)
