"""The host agents of an elastic job: started on this machine and over ssh, told what to do, heard.

One process per host (``ranks/host_agent.py``), which is no child of an MPI's: it owns the fork server, the
rank agents, the memory of generations and the commits. It connects to the same server as the rank agents do;
the loop hands over what comes on connections that are not ranks'. Nothing here waits: starts run in threads,
and what becomes of them comes out of ``poll``.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from queue import SimpleQueue
from typing import Any

from ringleader.launch.elastic.host_agent_events import (
    CommitsFrozen,
    Committed,
    HostAgentError,
    HostAgentEvent,
    HostAgentFailed,
    HostAgentLost,
    HostAgentStarted,
    Notice,
    NotPrepared,
    Prepared,
    event_of,
)
from ringleader.launch.host_program import run_on_host, why_failed
from ringleader.launch.ssh.connections import SshConnections
from ringleader.launch.supervision.agent_connections import AgentConnection, AgentServer
from ringleader.rank_placement import HostFacts
from ringleader.ranks import host_agent, protocol
from ringleader.ranks.commit_memory import LIMIT_VARIABLE
from ringleader.value_class import dataclass

START_SECONDS = 20.0
"""For a host agent to have connected: ssh, a Python without site-packages, one TCP connection."""
FREEZE_AFTER = 10.0
"""Seconds without a word from the launcher's machine after which a host's commits are frozen: as many as make
the launcher give it up. Ranks wait with a commit that is frozen, but not for ever (`FROZEN_SECONDS`)."""
LOST_FACTOR, LOST_MARGIN = 3.0, 20.0
"""A host ends everything of a job after so many times the silence that makes the launcher give it up, at most
so many seconds more: the launcher has long gone on without it."""
OF_THE_HOST = (Prepared, NotPrepared, Committed, CommitsFrozen, Notice, HostAgentError)
"""Events that tell what a host has and does, for as long as its agent is the launcher's."""


def ended_after(lost_after: float) -> float:
    """Return after how many silent seconds a host ends everything of a job.

    ``lost_after``: after how many the launcher gives a host up and goes on without it.
    """
    return min(LOST_FACTOR * lost_after, lost_after + LOST_MARGIN)


@dataclass(frozen=True, kw_only=True)
class HostAgentConfig:
    """What every host agent of a job is told at its start, on its standard input."""

    control: str
    """Where the launcher listens: ``agent_connections.control_variable``."""
    token: str
    """The job's secret."""
    directory: str
    """The job's directory, by the same path on every host."""
    freeze_after: float = FREEZE_AFTER
    lost_after: float = ended_after(FREEZE_AFTER)


class HostAgents:
    """All of them, by the name of their host."""

    def __init__(
        self,
        *,
        server: AgentServer,
        config: HostAgentConfig,
        environ: Mapping[str, str],
        ssh: SshConnections | None = None,
    ) -> None:
        """Nobody is started yet. ``environ``: what an agent on this machine, and so its ranks, inherit.

        ``ssh``: open connections to the other hosts; only those that it knows can be started there.
        """
        self._server = server
        self._config = config
        self._environ = dict(environ)
        self.control = config.control
        """What agents that are started from now on are told."""
        self.ssh = ssh
        self._connections: dict[str, AgentConnection] = {}
        self._hosts: dict[AgentConnection, str] = {}
        self._pids: dict[str, int] = {}
        self._starting: dict[str, float] = {}
        self._leaving: set[AgentConnection] = set()
        """Of agents that were let go, which may still end what they have."""
        self._failures: SimpleQueue[HostAgentFailed] = SimpleQueue()

    # --- starting -----------------------------------------------------------------------------------------

    def start(self, host: HostFacts, *, number: int = 0, seconds: float = START_SECONDS) -> None:
        """Start a host's agent; ``HostAgentStarted`` or ``HostAgentFailed`` follows within ``seconds``.

        ``number``: among the agents of its machine, where several names of it are hosts of their own.
        """
        name = host.host.name
        self._starting[name] = time.monotonic() + seconds
        args = (host, number, seconds)
        threading.Thread(target=self._start, args=args, name=f"start-{name}", daemon=True).start()

    def _start(self, host: HostFacts, number: int, seconds: float) -> None:
        """Start it and wait until it has detached itself; a failure is put where ``poll`` finds it."""
        config = self._config
        words = {
            "control": self.control,
            "token": config.token,
            "directory": config.directory,
            "host": host.host.name,
            "number": number,
            "freeze_after": config.freeze_after,
            "lost_after": config.lost_after,
            "commit_limit": self._environ.get(LIMIT_VARIABLE, ""),
        }
        stdin = json.dumps(words).encode() + b"\n"
        argv = agent_argv(host)
        reply = run_on_host(host, argv, stdin=stdin, seconds=seconds, environ=self._environ, ssh=self.ssh)
        if reply.exit_code != 0:
            why = why_failed(reply, "host agent", seconds)
            self._failures.put(HostAgentFailed(host=host.host.name, why=why))

    # --- hearing ------------------------------------------------------------------------------------------

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts whose agents are connected."""
        return tuple(self._connections)

    def pid(self, host: str) -> int:
        """Return the process number that the agent of a host has there."""
        return self._pids[host]

    def owns(self, connection: AgentConnection) -> bool:
        """Say whether a connection is a host agent's, and so are its frames."""
        return connection in self._hosts

    def hello(self, connection: AgentConnection, words: Mapping[str, Any]) -> HostAgentStarted:
        """Take the first message of a connection, where it says ``host_hello``.

        Raises ProtocolError for one that nobody started, or that is there already.
        """
        host = str(words.get("host"))
        if words.get("do") == "host_failed":
            self._failures.put(HostAgentFailed(host=host, why=f"its host agent failed: {words.get('why')}"))
            raise protocol.ProtocolError(f"the host agent of {host} failed")
        known = self._connections.get(host)
        if host not in self._starting or (known is not None and known not in self._leaving):
            raise protocol.ProtocolError(f"a host agent of {host} that nobody waits for")
        if known is not None:
            self._server.drop(known)
            self.lost(known)
        del self._starting[host]
        try:
            event = event_of(host, words)
        except TypeError as error:
            raise protocol.ProtocolError(f"{host}: {error}") from error
        if not isinstance(event, HostAgentStarted):
            raise protocol.ProtocolError("no host_hello")
        self._connections[host], self._hosts[connection] = connection, host
        self._pids[host] = event.pid
        return event

    def frame(self, connection: AgentConnection, kind: int, payload: bytes) -> HostAgentEvent | None:
        """Return what a frame of a host agent says; ``None``: nothing that we know. Raises ProtocolError."""
        if kind != protocol.MESSAGE:
            return None
        host = self._hosts[connection]
        try:
            event = event_of(host, protocol.read_message(payload))
        except TypeError as error:
            raise protocol.ProtocolError(f"{host}: {error}") from error
        if connection in self._leaving and isinstance(event, OF_THE_HOST):
            return None  # another agent may be on its way by now, and has none of it
        return event

    def lost(self, connection: AgentConnection) -> HostAgentLost | None:
        """Take the end of a connection; ``None`` where its agent was told ``bye``."""
        host = self._hosts.pop(connection)
        del self._connections[host]
        if connection in self._leaving:
            self._leaving.discard(connection)
            return None
        return HostAgentLost(host=host, silent=connection.silent)

    def poll(self) -> list[HostAgentEvent]:
        """Return which starts have failed since the last call, or taken too long."""
        found: list[HostAgentEvent] = []
        while not self._failures.empty():
            failure = self._failures.get()
            if self._starting.pop(failure.host, None) is not None:
                found.append(failure)
        now = time.monotonic()
        for host in [host for host, until in self._starting.items() if now > until]:
            del self._starting[host]
            found.append(HostAgentFailed(host=host, why="its host agent started and did not report"))
        return found

    # --- telling ------------------------------------------------------------------------------------------

    def tell(self, host: str, /, **words: Any) -> None:
        """Send a message to a host's agent, if it is there."""
        if (connection := self._connections.get(host)) is not None:
            self._server.send(connection, protocol.message(**words))

    def tell_all(self, **words: Any) -> None:
        """Send a message to every agent."""
        for host in self._connections:
            self.tell(host, **words)

    def prepare(
        self, host: str, *, python: str, preload: Sequence[str], env: Mapping[str, str], cwd: str
    ) -> None:
        """Have a host start its fork server: ``python`` with ``env`` on top of the host's own, in ``cwd``,
        imports these modules. ``Prepared`` or ``NotPrepared`` follows."""
        self.tell(host, do="prepare", python=python, preload=list(preload), env=dict(env), cwd=cwd)

    def spawn(self, host: str, incarnation: int, *, env: Mapping[str, str], warm: bool = True) -> None:
        """Have a host fork a rank agent: ``Spawned`` or ``NotSpawned`` follows, and its ``hello`` on a
        connection of its own, with ``rank`` the incarnation. ``env``: variables on top of the host's own.

        ``warm``: from the fork server if there is one by now; ``Spawned.warm`` says whether it was so.
        """
        self.tell(host, do="spawn", incarnation=incarnation, env=dict(env), warm=warm)

    def kill(self, host: str, incarnation: int) -> None:
        """Have a rank end at once (SIGKILL); its agent lives on and says how it ended."""
        self.tell(host, do="kill", incarnation=incarnation)

    def leave(self, host: str, incarnation: int, why: str) -> None:
        """Tell a rank that it is no member any more: it ends with 0."""
        self.tell(host, do="leave", incarnation=incarnation, why=why)

    def begin_generation(
        self,
        *,
        number: int,
        world: int,
        restore: int,
        members: Sequence[tuple[int, int, int, str]],
        hosts: Sequence[str],
    ) -> None:
        """Tell all agents of a generation.

        ``members`` by rank: (incarnation, world rank, host index, arrival). Most ranks arrive alike, and what
        is alike is sent once.
        """
        arrivals = {arrival: None for *_, arrival in members}
        places = {arrival: place for place, arrival in enumerate(arrivals)}
        self.tell_all(
            do="generation",
            number=number,
            world=world,
            restore=restore,
            members=[[*numbers, places[arrival]] for *numbers, arrival in members],
            arrivals=list(arrivals),
            hosts=list(hosts),
        )

    def end_generation(self, number: int, **words: Any) -> None:
        """Tell all agents that a generation is broken: ``rank``, ``incarnation``, ``exit_code``, ``signal``,
        ``host``, ``words`` as far as they are known."""
        self.tell_all(do="end_generation", number=number, **words)

    def notify(self, *, counter: int, result: int) -> None:
        """Tell all ranks that hosts were added (1), removed (2) or both (3); ``counter`` goes up."""
        self.tell_all(do="notify", counter=counter, result=result)

    def tell_preparing(self, preparing: bool) -> None:
        """Tell all ranks whether an update of the hosts is being prepared."""
        self.tell_all(do="preparing", preparing=preparing)

    def end_world(self, world: int) -> None:
        """Tell all proxies of a world that it is over: they end by themselves."""
        self.tell_all(do="end_world", world=world)

    def checkpoint(self, host: str, *, directory: str, every: int) -> None:
        """Have a host write every n-th commit to a file; 0: none any more."""
        self.tell(host, do="checkpoint", directory=directory, every=every)

    def load_checkpoint(self, host: str, *, directory: str) -> None:
        """Have a host read the newest good file of a directory: ``CheckpointLoaded`` follows."""
        self.tell(host, do="load_checkpoint", directory=directory)

    def bye(self, host: str) -> None:
        """Let a host's agent go: it ends what is left of the job there, then itself."""
        self._starting.pop(host, None)
        connection = self._connections.get(host)
        if connection is not None:
            self._leaving.add(connection)
            self.tell(host, do="bye")

    def bye_all(self) -> None:
        """Let all of them go."""
        for host in self.hosts:
            self.bye(host)


def agent_argv(host: HostFacts) -> tuple[str, ...]:
    """Return the command that starts a host's agent there."""
    beside = PurePosixPath(host.agent or str(Path(host_agent.__file__)))
    return (host.python or sys.executable, "-I", "-S", str(beside.with_name("host_agent.py")))
