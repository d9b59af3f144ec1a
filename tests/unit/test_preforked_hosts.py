"""The launcher's side of a host's warm Python: who may hold its connection, and who hears what went wrong."""

import contextlib
import json
import socket
import threading
from types import SimpleNamespace

import pytest

from ringleader.agents import protocol
from ringleader.agents.protocol import LauncherUnreachableError, connect
from ringleader.launch.elastic import host_agents
from ringleader.launch.preforked_hosts import PreforkedHosts
from ringleader.launch.ssh.connections import Reply
from ringleader.plan.job import Host, Job
from ringleader.plan.rank_placement import HostFacts

pytestmark = pytest.mark.process
HOST = HostFacts(host=Host(name="h1"), hostname="h1", identity="id", is_local=True, cpus=(0,))


class Started:
    """Warm Pythons whose start is taken down instead of made."""

    def __init__(self, tmp_path, monkeypatch, exit_code=1):
        (tmp_path / "train.py").write_text("import json\n")
        job = Job(command=("python", str(tmp_path / "train.py")), np=1, warm=True, max_restarts=1)
        self.words = {}
        self._exit_code = exit_code
        self.done = threading.Event()
        monkeypatch.setattr(host_agents, "run_on_host", self._run)
        self.hosts = PreforkedHosts(job)
        prepared = SimpleNamespace(
            plan=SimpleNamespace(hosts=(HOST,)),
            addresses=("127.0.0.1",),
            directory=str(tmp_path),
            run_id="run",
            job=job,
            ssh=None,
        )
        self.hosts.start(prepared, {})
        assert self.done.wait(20)

    def _run(self, host, argv, *, stdin, **named):
        self.words = json.loads(stdin)
        self.done.set()
        return Reply(exit_code=self._exit_code, stdout=b"", stderr="no room")


@pytest.fixture
def started(tmp_path, monkeypatch):
    made = Started(tmp_path, monkeypatch)
    with contextlib.closing(made.hosts):
        yield made


def test_a_host_that_connects_is_told_what_to_import_and_a_stranger_nothing(tmp_path, monkeypatch):
    started = Started(tmp_path, monkeypatch, exit_code=0)
    with contextlib.closing(started.hosts):
        control, token = started.words["control"], started.words["token"]
        address = ("127.0.0.1", int(control.rpartition(":")[2]))
        strangers = [socket.create_connection(address) for _ in range(80)]
        with pytest.raises(LauncherUnreachableError):
            connect(control, "another", rounds=1)
        launcher = connect(control, token)
        launcher.say(do="host_hello", host="h1", pid=1)
        frames = []
        while not frames:
            threading.Event().wait(0.01)
            frames += launcher.frames()
        words = protocol.read_message(frames[0][1])
        assert (words["do"], words["preload"], words["serves_ranks"]) == ("prepare", [], True)
        launcher.say(do="not_prepared", why="import x: ModuleNotFoundError")
        found = []
        while not found:
            threading.Event().wait(0.01)
            found = started.hosts.warnings()
        assert found == ["h1: import x: ModuleNotFoundError; its ranks start by themselves"]
    while launcher.open:
        threading.Event().wait(0.01)
        list(launcher.frames())
    for one in strangers:
        one.close()
