"""Hosts of a job that do not exist: their agents' connections, all in this process, and no user's code.

    python benchmarks/simulated_hosts.py SOCKET        `control_plane.py` starts some of these

What is sent to the launcher goes through the agents' own modules (`agents/protocol`): connections that are
proven on both sides, sealed frames, the messages of `host_agent_loop` and `rank_agent_loop`. Nothing is
forked: a rank is a connection that prints lines and steps when `control_plane.py` says so, and an MPI proxy
is a message of its host. Orders come as lines of JSON to SOCKET, from `control_plane.py` and its mpirun.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ringleader.agents import protocol

AT_ONCE = 32
"""Agents of this process that connect at a time."""
LINES_OF_FRAME = 10
LINE = b"x" * 99 + b"\n"
ARRIVALS = [json.dumps({"settings": {"fusion": 1 << 26}, "processors": [4 * slot]}) for slot in range(8)]
"""What the ranks of a host say when they arrive: alike on all hosts, as a rule."""
Order = dict[str, Any]


class Agent:
    """A connection to the launcher."""

    def __init__(self, hosts: Hosts, connection: protocol.LauncherConnection) -> None:
        self.hosts, self.connection = hosts, connection
        self.is_late = False

    def obey(self, words: Order) -> None:
        """Do what the launcher says."""
        raise NotImplementedError

    def say(self, do: str, **words: Any) -> None:
        self.send(protocol.message(do=do, **words))

    def send(self, frame: bytes) -> None:
        self.connection.add(frame)
        self.hosts.watch(self)


class Rank(Agent):
    """A rank's agent, and its rank."""

    host: Host | None = None
    room = owed = 0

    def begin(self, number: int, size: int | None, identity: str) -> None:
        self.number, self.slot, self.is_over, self.generation = number, number % 8, False, 0
        where = {"host": identity, "hostname": identity, "daemon": "prted" if size else ""}
        self.say("hello", rank=number, size=size, pid=1, free_port=20000, jax_port=61440, **where)

    def obey(self, words: Order) -> None:
        match words["do"]:
            case "start":
                self.room = int(words["window"])
                self.say("started", pid=1, why_cold="")
                if self.host is not None:
                    self.waits("start", 0)
                self.write()
            case "written":
                self.room += int(words["bytes"])
                self.write()
            case "stop":
                self.end(signal=15, stopped="ringleader")
            case "bye":
                self.hosts.close(self)
                if self.host is not None:
                    del self.host.ranks[self.number]
                    how = {"exit_code": 0, "signal": None}
                    self.host.say("rank_agent_ended", incarnation=self.number, **how)

    def waits(self, reason: str, after: int) -> None:
        assert self.host is not None
        words = {"commits": self.host.commits, "arrival": ARRIVALS[self.slot]}
        self.host.say("rank_waiting", incarnation=self.number, after=after, reason=reason, **words)

    def print(self, lines: int) -> None:
        self.owed += lines
        self.write()

    def write(self) -> None:
        """Send lines as far as the launcher has granted them."""
        while self.owed and self.room >= LINES_OF_FRAME * len(LINE):
            lines = min(self.owed, LINES_OF_FRAME)
            self.owed -= lines
            self.room -= lines * len(LINE)
            self.send(protocol.frame(protocol.STDOUT, lines * LINE))

    def step(self, number: int) -> None:
        spent = {"step_seconds": 0.1 * number, "exchange_seconds": 0.02 * number, "waiting_seconds": 0.0}
        self.say("report", report={"kind": "step", "steps": number, **spent})

    def end(self, **how: Any) -> None:
        if not self.is_over:
            self.is_over = True
            usual = {"exit_code": None, "signal": None, "seconds": 1.0, "stopped": "", "reason": ""}
            if self.host is not None and self.generation:
                self.host.say("rank_detached", incarnation=self.number, generation=self.generation)
            self.say("ended", **usual | how)
            self.say("done")
            if self.host is not None:
                self.host.say("rank_gone", incarnation=self.number)


class Host(Agent):
    """A host agent of an elastic job."""

    def begin(self, config: Order) -> None:
        self.name, self.config = str(config["host"]), config
        self.ranks: dict[int, Rank] = {}
        self.proxies: dict[int, list[int]] = {}
        self.commits: list[int] = []
        where = {"hostname": self.name, "identity": self.name, "cpus": [*range(32)], "socket": "/none"}
        self.say("host_hello", host=self.name, pid=1, **where)

    def obey(self, words: Order) -> None:  # noqa: C901 - one branch for each order
        match words["do"]:
            case "spawn":
                self.spawn(int(words["incarnation"]))
            case "generation":
                self.commits = [words["restore"] + 1]
                for incarnation in self.ranks.keys() & self.hosts.members(words):
                    if (rank := self.ranks.get(incarnation)) is not None:
                        rank.generation = words["number"]
                        self.say("rank_attached", incarnation=incarnation, generation=rank.generation)
                self.say("committed", number=self.commits[0], nbytes=1)
            case "end_generation":
                self.leave("broken")
            case "notify":
                for rank in self.ranks.values():
                    if rank.generation:
                        self.say("rank_detached", incarnation=rank.number, generation=rank.generation)
                self.leave("hosts changed")
            case "kill" if words["incarnation"] in self.ranks:
                self.ranks[words["incarnation"]].end(signal=9)
            case "leave" if words["incarnation"] in self.ranks:
                self.ranks[words["incarnation"]].end(exit_code=0)
            case "end_world":
                for rank in self.proxies.pop(words["world"], ()):
                    self.say("proxy_gone", world=words["world"], world_rank=rank)
                self.hosts.end_world(words["world"])
            case "bye":
                self.hosts.close(self)

    def leave(self, reason: str) -> None:
        for rank in self.ranks.values():
            if rank.generation:
                after, rank.generation = rank.generation, 0
                rank.waits(reason, after)

    def spawn(self, incarnation: int) -> None:
        def begin(connection: protocol.LauncherConnection) -> None:
            rank = self.ranks[incarnation] = Rank(self.hosts, connection)
            self.hosts.add(rank)
            rank.host = self
            rank.begin(incarnation, None, self.name)

        self.hosts.connect(self.config, begin)
        self.say("spawned", incarnation=incarnation, pid=1, warm=True)

    def start_proxies(self, world: int, ranks: list[int], size: int) -> None:
        self.proxies[world] = ranks
        for rank in ranks:
            self.say("proxy_ready", world=world, world_rank=rank, size=size, library="none", pid=1)


class Hosts:
    """All agents of this process."""

    def __init__(self, path: str) -> None:
        self.selector = selectors.DefaultSelector()
        self.agents: dict[int, Agent] = {}
        self.hosts: dict[str, Host] = {}
        self.plain: list[Rank] = []
        """Ranks of a job that is not elastic, by rank."""
        self.worlds: dict[int, socket.socket] = {}
        """World → its mpirun, which ends when we close the connection; 0: of a job that is not elastic."""
        self.pool, self.wake = ThreadPoolExecutor(AT_ONCE), os.eventfd(0, os.EFD_NONBLOCK)
        self.connected: deque[Callable[[], None]] = deque()
        self.orders: dict[socket.socket, bytes] = {}
        self.long: tuple[bytes, Order] = b"", {}
        self.generation: tuple[int, set[int]] = 0, set()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1024)
        self.selector.register(listener, selectors.EVENT_READ, self.accept)
        self.selector.register(self.wake, selectors.EVENT_READ, self.serve_connected)

    def serve(self) -> None:
        """Serve until our parent is gone."""
        parent = os.getppid()
        while os.getppid() == parent:
            for key, mask in self.selector.select(1.0):
                key.data(key.fileobj, mask)

    # --- agents -------------------------------------------------------------------------------------------

    def connect(self, config: Order, then: Callable[[protocol.LauncherConnection], None]) -> None:
        def run() -> None:
            connection = protocol.connect(config["control"], config["token"])
            self.connected.append(lambda: then(connection))
            os.eventfd_write(self.wake, 1)

        self.pool.submit(run).add_done_callback(lambda done: done.result())

    def serve_connected(self, fd: Any, mask: int) -> None:
        os.eventfd_read(self.wake)
        while self.connected:
            self.connected.popleft()()

    def add(self, agent: Agent) -> None:
        self.agents[agent.connection.fd] = agent
        self.selector.register(agent.connection.fd, selectors.EVENT_READ, self.serve_agent)

    def watch(self, agent: Agent) -> None:
        """Have the rest of what an agent says sent when the connection takes it."""
        if bool(agent.connection.pending) != agent.is_late and agent.connection.open:
            agent.is_late = not agent.is_late
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if agent.is_late else 0)
            self.selector.modify(agent.connection.fd, events, self.serve_agent)

    def members(self, order: Order) -> set[int]:
        """Return the incarnations of a generation, found once."""
        if self.generation[0] != order["number"]:
            self.generation = order["number"], {one[0] for one in order["members"]}
        return self.generation[1]

    def message(self, payload: bytes) -> Order:
        """Read a message; a long one to all hosts is read once: each of them has its own cores."""
        if len(payload) < 1000:
            return protocol.read_message(payload)
        if self.long[0] != payload:
            self.long = payload, protocol.read_message(payload)
        return self.long[1]

    def serve_agent(self, fd: int, mask: int) -> None:
        agent = self.agents.get(fd)
        if agent is None:
            return
        if mask & selectors.EVENT_WRITE:
            agent.connection.flush()
            self.watch(agent)
        if mask & selectors.EVENT_READ:
            frames = [*agent.connection.frames()] if agent.connection.open else []
            for _kind, payload in frames:
                agent.obey(self.message(payload))
        if not agent.connection.open and self.agents.get(fd) is agent:
            self.close(agent)

    def close(self, agent: Agent) -> None:
        if self.agents.pop(agent.connection.fd, None) is not None:
            self.selector.unregister(agent.connection.fd)
            agent.connection.close()
        if isinstance(agent, Rank) and agent.host is None:
            self.plain.remove(agent)
            if not self.plain:
                self.end_world(0)
        if isinstance(agent, Host) and self.hosts.get(agent.name) is agent:
            del self.hosts[agent.name]

    def end_world(self, world: int) -> None:
        if (mpirun := self.worlds.pop(world, None)) is not None:
            self.selector.unregister(mpirun)
            self.orders.pop(mpirun, None)
            mpirun.close()

    # --- orders -------------------------------------------------------------------------------------------

    def accept(self, listener: socket.socket, mask: int) -> None:
        sock, _ = listener.accept()
        self.orders[sock] = b""
        self.selector.register(sock, selectors.EVENT_READ, self.read)

    def read(self, sock: socket.socket, mask: int) -> None:
        if sock not in self.orders:
            return  # it was closed since the selector saw it
        data = sock.recv(1 << 20)
        *lines, self.orders[sock] = (self.orders[sock] + data).split(b"\n")
        for line in lines:
            words = json.loads(line)
            getattr(self, f"do_{words.pop('do')}")(sock, **words)
        if not data:  # it was killed
            self.selector.unregister(sock)
            del self.orders[sock]
            self.worlds = {world: one for world, one in self.worlds.items() if one is not sock}
            sock.close()

    def do_host(self, sock: socket.socket, config: Order) -> None:
        """Start a host's agent."""

        def begin(connection: protocol.LauncherConnection) -> None:
            host = self.hosts[config["host"]] = Host(self, connection)
            self.add(host)
            host.begin(config)

        self.connect(config, begin)

    def do_ranks(self, sock: socket.socket, ranks: list[tuple[int, str]], size: int, **config: Any) -> None:
        """Start ranks of a job that is not elastic, each with its host's identity."""
        self.worlds[0] = sock
        for number, identity in ranks:

            def begin(connection: Any, number: int = number, identity: str = identity) -> None:
                rank = Rank(self, connection)
                self.plain.append(rank)
                self.add(rank)
                rank.begin(number, size, identity)

            self.connect(config, begin)

    def do_world(self, sock: socket.socket, world: int, hosts: dict[str, list[int]], size: int) -> None:
        """Start the proxies of a world."""
        self.worlds[world] = sock
        for name, ranks in hosts.items():
            if name in self.hosts:
                self.hosts[name].start_proxies(world, ranks, size)

    def do_print(self, sock: socket.socket, lines: int) -> None:
        for rank in self.ranks():
            rank.print(lines)

    def do_step(self, sock: socket.socket, number: int) -> None:
        for rank in self.ranks():
            rank.step(number)

    def do_end(self, sock: socket.socket) -> None:
        for rank in self.ranks():
            rank.end(exit_code=0)

    def do_lose(self, sock: socket.socket, host: str) -> None:
        """Have a host vanish, its connections with it."""
        for rank in self.ranks():
            if host == (f"h{rank.number // 8}" if rank.host is None else rank.host.name):
                self.close(rank)
        if host in self.hosts:
            self.close(self.hosts[host])

    def ranks(self) -> list[Rank]:
        return [one for one in self.agents.values() if isinstance(one, Rank)]


if __name__ == "__main__":
    Hosts(sys.argv[1]).serve()
