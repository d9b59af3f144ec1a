"""The host agents of an elastic job: started on this machine and over ssh, heard, told.

One process per host (``agents/host_agent.py``), which is not a child of an MPI's: it owns the fork server,
the rank agents, the memory of generations and the commits. It connects to the same server as the rank agents
do; the loop hands over what comes on connections that are not ranks'. Nothing here waits: starts run in
threads, and those that failed come out of ``failed``. What a host's agent says is for the decider, or about
the host's own start (``elastic_hosts``).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from queue import SimpleQueue
from typing import Any

from ringleader.agents import protocol
from ringleader.agents.elastic.commit_memory import LIMIT_VARIABLE
from ringleader.launch.elastic.membership_state import AT_ONCE
from ringleader.launch.ssh.connections import TIMED_OUT, Reply, SshConnections
from ringleader.launch.supervision.agent_connections import AgentConnection, AgentServer
from ringleader.plan.rank_placement import HostFacts

START_SECONDS = 20.0
"""For a host agent to have connected: ssh, a Python without site-packages, one TCP connection."""
LOST_FACTOR, LOST_MARGIN = 3.0, 20.0
"""A host ends everything of a job after so many times the silence that makes the launcher give it up, at most
this many seconds more: the launcher has long continued without it."""
_OF_THE_HOST = (
    "prepared",
    "not_prepared",
    "committed",
    "commits_frozen",
    "checkpoint_loading",
    "checkpoint_loaded",
    "notice",
    "host_failed",
)
"""Messages that report what a host has and does, for as long as its agent is the launcher's."""
_SILENT = "it stopped responding; the host or its network is down"


def ended_after(lost_after: float) -> float:
    """Return after how many silent seconds a host ends everything of a job.

    ``lost_after``: after how many the launcher gives a host up and continues without it.
    """
    return min(LOST_FACTOR * lost_after, lost_after + LOST_MARGIN)


class HostAgents:
    """All of them, by the name of their host."""

    def __init__(
        self,
        *,
        server: AgentServer,
        control: str,
        token: str,
        directory: str,
        freeze_after: float,
        lost_after: float | None = None,
        environ: Mapping[str, str],
        ssh: SshConnections | None = None,
    ) -> None:
        """Nobody is started yet. ``environ``: what an agent on this machine, and so its ranks, inherit.

        ``control``: where the launcher listens (``agent_connections.control_variable``). ``token``: the job's
        secret. ``directory``: the job's, by the same path on every host. ``freeze_after``: seconds without a
        word from the launcher's machine after which a host's commits are frozen: as many as make the launcher
        give it up. ``lost_after``: after which it ends everything of the job; without it ``ended_after``.
        ``ssh``: open connections to the other hosts; only those that it knows can be started there.
        """
        self._server = server
        self._environ = dict(environ)
        self.config = {
            "control": control,
            "token": token,
            "directory": directory,
            "freeze_after": freeze_after,
            "lost_after": ended_after(freeze_after) if lost_after is None else lost_after,
            "commit_limit": self._environ.get(LIMIT_VARIABLE, ""),
        }
        """What every agent that is started from now on reads from its standard input."""
        self.ssh = ssh
        self.gate = threading.BoundedSemaphore(AT_ONCE)
        """Through which agents are started; probes have another, so that neither waits for the other."""
        self._connections: dict[str, AgentConnection] = {}
        self._hosts: dict[AgentConnection, str] = {}
        self._pids: dict[str, int] = {}
        self._starting: dict[str, list[float]] = {}
        """Host → until when it may start; nothing while it waits for its turn."""
        self._leaving: set[AgentConnection] = set()
        """Of agents that were let go, which may still end what they have."""
        self._failures: SimpleQueue[tuple[str, str]] = SimpleQueue()

    # --- starting -----------------------------------------------------------------------------------------

    def start(self, host: HostFacts, *, number: int = 0, seconds: float = START_SECONDS) -> None:
        """Start a host's agent; ``hello`` or ``failed`` follows within ``seconds`` of its turn.

        ``number``: among the agents of its machine, where several names of it are separate hosts.
        """
        name = host.host.name
        until = self._starting[name] = list[float]()
        args = (host, number, seconds, until)
        threading.Thread(target=self._start, args=args, name=f"start-{name}", daemon=True).start()

    def _start(self, host: HostFacts, number: int, seconds: float, until: list[float]) -> None:
        """Start it and wait until it has detached itself."""
        name = host.host.name
        stdin = json.dumps(self.config | {"host": name, "number": number}).encode() + b"\n"
        argv = agent_argv(host)
        with self.gate:
            if self._starting.get(name) is not until:
                return  # it was let go meanwhile
            until.append(time.monotonic() + seconds)
            reply = run_on_host(host, argv, stdin=stdin, seconds=seconds, environ=self._environ, ssh=self.ssh)
        if reply.exit_code != 0:
            self._failures.put((name, why_failed(reply, "host agent", seconds)))

    def failed(self) -> list[tuple[str, str]]:
        """Return the hosts whose agents could not be started since the last call, and why."""
        found = []
        while not self._failures.empty():
            name, why = self._failures.get()
            if self._starting.pop(name, None) is not None:
                found.append((name, why))
        now = time.monotonic()
        for name in [name for name, until in self._starting.items() if until and now > until[0]]:
            del self._starting[name]
            found.append((name, "its host agent started and did not report"))
        return found

    # --- hearing ------------------------------------------------------------------------------------------

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts whose agents are connected."""
        return tuple(self._connections)

    def pid(self, host: str) -> int:
        """Return the process number that the agent of a host has there."""
        return self._pids[host]

    def host(self, connection: AgentConnection) -> str | None:
        """Return the host whose agent has this connection; ``None``: it is not a host agent's."""
        return self._hosts.get(connection)

    def hello(self, connection: AgentConnection, words: Mapping[str, Any]) -> str:
        """Take the first message of a connection, ``host_hello``; return its host.

        Raises ProtocolError for one that nobody started, that is there already, or that has failed.
        """
        host = str(words.get("host"))
        if words.get("do") == "host_failed":
            self._failures.put((host, f"its host agent failed: {words.get('why')}"))
            raise protocol.ProtocolError(f"the host agent of {host} failed")
        known = self._connections.get(host)
        if host not in self._starting or (known is not None and known not in self._leaving):
            raise protocol.ProtocolError(f"a host agent of {host} that nobody waits for")
        if type(words.get("pid")) is not int:
            raise protocol.ProtocolError(f"{host}: an incomplete host_hello")
        if known is not None:
            self._server.drop(known)
            self.lost(known)
        del self._starting[host]
        self._connections[host], self._hosts[connection] = connection, host
        self._pids[host] = words["pid"]
        return host

    def frame(self, connection: AgentConnection, kind: int, payload: bytes) -> dict[str, Any] | None:
        """Return the message in a frame of a host agent; ``None``: it does not count.

        Raises ProtocolError where it lacks a field.
        """
        words = protocol.read_message(payload) if kind == protocol.MESSAGE else {}
        what = str(words.get("do"))
        if what not in protocol.HOST_MESSAGES:
            return None
        if lacks := [name for name in protocol.HOST_MESSAGES[what] if name not in words]:
            raise protocol.ProtocolError(f"{self._hosts[connection]}: {what} without {', '.join(lacks)}")
        if connection in self._leaving and what in _OF_THE_HOST:
            return None  # another agent may be on its way by now, and has none of it
        return words

    def lost(self, connection: AgentConnection) -> tuple[str, str] | None:
        """Take the end of a connection; return its host and why it is lost, ``None`` after ``bye``."""
        host = self._hosts.pop(connection)
        del self._connections[host]
        if connection in self._leaving:
            self._leaving.discard(connection)
            return None
        return host, _SILENT if connection.silent else "its host agent has ended"

    # --- telling ------------------------------------------------------------------------------------------

    def tell(self, host: str, /, **words: Any) -> None:
        """Send a message to a host's agent, if it is there (``host_agent_loop.ORDERS``)."""
        if (connection := self._connections.get(host)) is not None:
            self._server.send(connection, protocol.message(**words))

    def tell_all(self, **words: Any) -> None:
        """Send a message to every agent."""
        message = protocol.message(**words)
        for connection in self._connections.values():
            self._server.send(connection, message)

    def bye(self, host: str, *, unfinished: bool = False) -> None:
        """Let a host's agent go: it ends what is left of the job there, then itself.

        ``unfinished``: the job is not done; where commits are written to files, the newest becomes one.
        """
        self._starting.pop(host, None)
        connection = self._connections.get(host)
        if connection is not None:
            self._leaving.add(connection)
            self.tell(host, do="bye", unfinished=unfinished)

    def bye_all(self) -> None:
        """Let all of them go."""
        for host in self.hosts:
            self.bye(host)


def agent_argv(host: HostFacts) -> tuple[str, ...]:
    """Return the command that starts a host's agent there."""
    beside = PurePosixPath(host.agent or str(Path(protocol.__file__)))
    return (host.python or sys.executable, "-I", "-S", str(beside.with_name("host_agent.py")))


def run_on_host(
    host: HostFacts,
    argv: tuple[str, ...],
    *,
    stdin: bytes,
    seconds: float,
    environ: Mapping[str, str],
    ssh: SshConnections | None,
) -> Reply:
    """Return how a program ended, or ``TIMED_OUT``. ``environ`` is what it has on this machine."""
    try:
        if not host.is_local and ssh is not None:
            return ssh.run(host.host, argv, stdin=stdin, deadline=seconds)
        ended = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            timeout=seconds,
            env=environ,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Reply(exit_code=TIMED_OUT, stdout=b"", stderr="")
    except OSError as error:
        return Reply(exit_code=127, stdout=b"", stderr=f"{argv[0]}: {error.strerror}")
    said = ended.stderr.decode(errors="replace")
    return Reply(exit_code=ended.returncode, stdout=ended.stdout, stderr=said)


def why_failed(reply: Reply, what: str, seconds: float) -> str:
    """Return in words why ``what`` did not start."""
    if reply.exit_code == TIMED_OUT:
        return f"its {what} could not be started within {seconds:g} s"
    lines = [line.strip() for line in reply.stderr.splitlines() if line.strip()]
    said = lines[-1] if lines else f"it ended with exit code {reply.exit_code}"
    return f"its {what} could not be started: {said}"
