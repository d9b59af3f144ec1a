"""A launcher for tests of host agents: starts real ones, serves them and the rank agents."""

import os
import selectors
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ringleader.agents import protocol
from ringleader.launch.elastic.host_agents import HostAgents
from ringleader.launch.ssh.connections import SshConnections
from ringleader.launch.supervision.agent_connections import AgentConnection, AgentServer
from ringleader.plan.job import Host
from ringleader.plan.rank_placement import HostFacts

TOKEN = "secret"
HOST = "h1"
SECONDS = 60.0


@dataclass
class Rank:
    """What a rank agent has said."""

    connection: AgentConnection
    hello: dict[str, Any]
    stdout: bytes = b""
    stderr: bytes = b""
    said: list[dict[str, Any]] = field(default_factory=list)

    def words(self, do: str) -> dict[str, Any] | None:
        return next((words for words in self.said if words["do"] == do), None)


class Launcher:
    """One host agent: on this machine, or over ssh on another that reaches us by ``address``."""

    def __init__(
        self,
        directory: Path,
        *,
        ssh: SshConnections | None = None,
        host: HostFacts | None = None,
        address: str = "127.0.0.1",
        silence: float = protocol.LOST_AFTER,
        freeze_after: float = 10.0,
        lost_after: float = 30.0,
    ) -> None:
        self.selector = selectors.PollSelector()
        self.server = AgentServer(
            self.selector, token=TOKEN, addresses=(address,), ranks=8, lost_after=silence
        )
        self.directory = directory / f"ringleader-{os.getuid()}" / f"test-{os.urandom(4).hex()}"
        self.agents = HostAgents(
            server=self.server,
            control=f"{address}:{self.server.port}",
            token=TOKEN,
            directory=str(self.directory),
            freeze_after=freeze_after,
            lost_after=lost_after,
            environ={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
            ssh=ssh,
        )
        self.facts = host or host_facts()
        self.events: list[Any] = []
        """What host agents said: each message's words as attributes, with ``host``; ``failed``, ``lost``."""
        self.ranks: dict[int, Rank] = {}
        self.pid = self.outer = 0
        """The host agent's two processes."""
        self.closed = False

    def begin(self) -> Any:
        self.agents.start(self.facts)
        started = self.until("host_hello")
        self.pid = started.pid if self.facts.is_local else seen_from_here(started.pid)
        self.outer = parent(self.pid)
        return started

    def turn(self) -> None:
        for key, mask in self.selector.select(0.02):
            if key.data == self.server.accept:
                self.server.accept()
                continue
            connection = key.data
            try:
                for kind, payload in self.server.serve(connection, mask):
                    self._frame(connection, kind, payload)
            except protocol.ProtocolError:
                self.server.drop(connection)
            gone = self.server.lost(connection) and self.agents.host(connection) is not None
            if gone and (lost := self.agents.lost(connection)) is not None:
                self._note(lost[0], {"do": "lost", "why": lost[1], "silent": connection.silent})
        for host, why in self.agents.failed():
            self._note(host, {"do": "failed", "why": why})

    def _note(self, host: str, words: Mapping[str, Any]) -> None:
        self.events.append(SimpleNamespace(**{**words, "host": host}))

    def _frame(self, connection: AgentConnection, kind: int, payload: bytes) -> None:
        if (host := self.agents.host(connection)) is not None:
            self.agents.frame(connection, kind, payload)
            self._note(host, protocol.read_message(payload))
        elif connection.rank is None:
            words = protocol.read_message(payload)
            if words["do"] == "hello":
                connection.rank = words["rank"]
                self.ranks[words["rank"]] = Rank(connection, words)
            else:
                self._note(self.agents.hello(connection, words), words)
        else:
            self._rank(self.ranks[connection.rank], kind, payload)

    def _rank(self, rank: Rank, kind: int, payload: bytes) -> None:
        if kind == protocol.MESSAGE:
            rank.said.append(protocol.read_message(payload))
        elif kind == protocol.STDOUT:
            rank.stdout += payload
        else:
            rank.stderr += payload

    def wait(self, done: Callable[[], Any], what: str, seconds: float = SECONDS) -> None:
        until = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < until, f"waited {seconds:g} s for {what}; heard {self.events[-5:]}"
            self.turn()

    def until(self, do: str, **values: Any) -> Any:
        """The next message of this name with these values; it is taken away."""

        def found() -> Any:
            for event in self.events:
                if event.do == do and all(getattr(event, k) == v for k, v in values.items()):
                    return event
            return None

        self.wait(lambda: found() is not None, f"{do} {values}")
        event = found()
        self.events.remove(event)
        return event

    def prepare(
        self, preload: Sequence[str] = (), *, cwd: str = "/", env: Mapping[str, str] | None = None
    ) -> None:
        words = {"python": sys.executable, "preload": list(preload), "env": dict(env or {}), "cwd": cwd}
        self.agents.tell(self.facts.host.name, do="prepare", **words)

    def kill(self, incarnation: int) -> None:
        self.agents.tell(self.facts.host.name, do="kill", incarnation=incarnation)

    def spawn(self, incarnation: int, *, warm: bool = True) -> Rank:
        self.agents.tell(self.facts.host.name, do="spawn", incarnation=incarnation, warm=warm)
        self.wait(lambda: incarnation in self.ranks, f"the hello of {incarnation}")
        return self.ranks[incarnation]

    def start(
        self,
        incarnation: int,
        *argv: str,
        warm: bool = True,
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        cpus: Sequence[int] = (),
        lost_after: float = 10.0,
        stdin: bool = False,
    ) -> Rank:
        """Spawn a rank agent and have it start its rank."""
        rank = self.spawn(incarnation, warm=warm)
        words = {"argv": [sys.executable, *argv], "cwd": cwd, "env": dict(env or {}), "cpus": list(cpus)}
        self.tell(rank, do="start", window=1 << 20, lost_after=lost_after, warm=warm, stdin=stdin, **words)
        return rank

    def tell(self, rank: Rank, **words: Any) -> None:
        self.server.send(rank.connection, protocol.message(**words))

    def finish(self, rank: Rank, seconds: float = SECONDS) -> dict[str, Any]:
        """Wait for a rank's end and all of its output, and let its agent go; return how it ended."""
        self.wait(lambda: rank.words("done"), f"the end of {rank.hello['rank']}", seconds)
        self.tell(rank, do="bye")
        ended = rank.words("ended")
        assert ended is not None
        return ended

    def run(self, incarnation: int, *argv: str, **options: Any) -> tuple[Rank, dict[str, Any]]:
        rank = self.start(incarnation, *argv, **options)
        return rank, self.finish(rank)

    def bye(self) -> None:
        self.agents.bye_all()
        self.wait(lambda: not self.agents.hosts, "the host agent's end")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.server.close()
            self.selector.close()


def host_facts(name: str = HOST, *, is_local: bool = True) -> HostFacts:
    return HostFacts(host=Host(name=name), hostname="here", identity="id", is_local=is_local, cpus=(0,))


def alive(pid: int) -> bool:
    """Whether a process is there and not dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def seen_from_here(pid: int) -> int:
    """The process id, here, of a host agent that has this one in its own namespace."""
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            inside = next(line for line in path.read_text().splitlines() if line.startswith("NSpid:")).split()
            if inside[-1] == str(pid) and b"host_agent.py" in path.with_name("cmdline").read_bytes():
                return int(path.parent.name)
        except OSError:
            continue
    raise AssertionError(f"no host agent {pid}")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def below(pid: int) -> list[int]:
    """Every living process below one."""
    from ringleader.agents import process_tree

    return process_tree.below(pid)


def gone(pids: Sequence[int], seconds: float) -> bool:
    """Whether all of these end within this long."""
    until = time.monotonic() + seconds
    while any(map(alive, pids)):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
