"""The launcher's side of a host's warm Python: who may hold its connection, and who hears what went wrong."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringleader.job import Host, Job
from ringleader.launch import warm_hosts
from ringleader.launch.ssh.connections import Reply
from ringleader.launch.warm_hosts import WarmHosts
from ringleader.rank_placement import HostFacts
from ringleader.ranks import warm_host

pytestmark = pytest.mark.process
HOST = HostFacts(host=Host(name="h1"), hostname="h1", identity="id", is_local=True, cpus=(0,))


class Started:
    """Warm Pythons whose start is taken down instead of made."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "train.py").write_text("import json\n")
        job = Job(command=("python", str(tmp_path / "train.py")), np=1, warm=True, max_restarts=1)
        self.words: dict[str, Any] = {}
        self.threads: set[int] = set()
        self.done = threading.Event()
        monkeypatch.setattr(warm_hosts, "run_on_host", self._run)
        self.hosts = WarmHosts(job)
        prepared: Any = SimpleNamespace(
            plan=SimpleNamespace(hosts=(HOST,)),
            addresses=("127.0.0.1",),
            directory=str(tmp_path),
            run_id="run",
            job=job,
            ssh=None,
        )
        self.hosts.start(prepared, {})
        assert self.done.wait(20)

    def _run(self, host: Any, argv: Any, *, stdin: bytes, **named: Any) -> Reply:
        self.words = json.loads(stdin)
        self.done.set()
        return Reply(exit_code=1, stdout=b"", stderr="no room")


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    made = Started(tmp_path, monkeypatch)
    with contextlib.closing(made.hosts):
        yield made


def test_what_went_wrong_is_told_by_whoever_asks(started: Started) -> None:
    """Threads tell the user nothing: one thread does."""
    found: list[str] = []
    for _ in range(200):
        found += started.hosts.warnings()
        if found:
            break
        threading.Event().wait(0.05)
    assert found == ["h1: its warm Python could not be started: no room; its ranks start by themselves"]


def test_a_connection_without_the_secret_takes_nobodys_place(started: Started) -> None:
    lease, token = started.words["lease"], started.words["token"]
    address = ("127.0.0.1", int(lease.rpartition(":")[2]))
    strangers = [socket.create_connection(address) for _ in range(80)]
    with pytest.raises(OSError, match=r"token|closed|reset"):
        warm_host._connected(lease, "another")
    with socket.socket(fileno=warm_host._connected(lease, token)) as held:
        held.setblocking(False)
        with pytest.raises(BlockingIOError):
            held.recv(1)  # it is held, and nothing is said
        started.hosts.close()
        held.settimeout(20)
        assert held.recv(1) == b""
    for one in strangers:
        one.close()


def test_a_warm_python_leaves_a_listener_that_does_not_know_the_secret() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            sock, _ = other.accept()
            sock.sendall(bytes(32))
            sock.recv(64)
            sock.sendall(bytes(32))
            sock.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(OSError, match="does not know the job's token"):
            warm_host._connected(f"127.0.0.1:{other.getsockname()[1]}", "secret")
        thread.join()
