"""Two thousand agents that are only sockets, and agents that nobody planned, as the launcher serves them."""

import os
import resource
import selectors
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conftest import Recorder
from tests.time_limits import patience

from ringleader.agents import protocol
from ringleader.errors import LaunchError
from ringleader.launch.exit_reason import Lost
from ringleader.launch.supervision import agent_connections
from ringleader.launch.supervision.agent_connections import AgentServer
from ringleader.launch.supervision.mpirun_session import Supervisor, ranges
from ringleader.launch.supervision.session import Channels
from ringleader.plan.job import Family, Job, Mpi
from ringleader.plan.rank_placement import HostFacts, place

TOKEN = "secret"
MANY = 2048


class Mpirun:
    """An mpirun that ends when it is told to, or when all agents have gone."""

    failure = ""

    def __init__(self) -> None:
        self.exit_code: int | None = None

    def __getattr__(self, name: str) -> Any:
        return None

    @property
    def ended(self) -> bool:
        return self.exit_code is not None

    def output(self) -> str:
        return ""

    def watch(self) -> None: ...

    def stop(self, *, hard: bool = False) -> None:
        self.exit_code = 0


class Agents(threading.Thread):
    """Agents in one thread: all report, start, print a line, end with 0 in turn, and leave when told."""

    def __init__(self, port: int, ranks: list[int], mpirun: Mpirun) -> None:
        super().__init__(daemon=True)
        self.port, self.ranks, self.mpirun = port, ranks, mpirun
        self.messages: Counter[str] = Counter()
        self.bytes = 0

    def run(self) -> None:
        selector = selectors.PollSelector()
        for rank in self.ranks:
            sock = socket.create_connection(("127.0.0.1", self.port), 30)
            ours, theirs = protocol.introduce(sock, TOKEN)
            hello = {"rank": rank, "size": len(set(self.ranks)), "host": "id-localhost"}
            words = {"hostname": "localhost", "pid": 1, "free_port": 1, "jax_port": 2, "daemon": ""}
            frame = protocol.message(do="hello", **hello, **words)
            sock.sendall(frame + ours.tag(frame))
            selector.register(sock, selectors.EVENT_READ, (protocol.Decoder(theirs), ours))
        while selector.get_map():
            for key, _ in selector.select(30):
                self._serve(selector, key)
        self.mpirun.exit_code = 0

    def _serve(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        sock = key.fileobj
        assert isinstance(sock, socket.socket)
        data = b""
        with suppress(OSError):
            data = sock.recv(1 << 16)
        self.bytes += len(data)
        decoder, seal = key.data
        told = [protocol.read_message(payload)["do"] for _, payload in decoder.feed(data)]
        self.messages.update(told)
        if "start" in told or "stop" in told:
            end = {"exit_code": 0, "signal": None, "seconds": 0.0, "stopped": "", "reason": ""}
            frames = [
                protocol.message(do="started", pid=2),
                protocol.frame(protocol.STDOUT, b"a line\n"),
                protocol.message(do="ended", **end),
                protocol.message(do="done"),
            ]
            sock.sendall(b"".join(frame + seal.tag(frame) for frame in frames))
        if not data or "bye" in told:
            selector.unregister(sock)
            sock.close()


@pytest.fixture
def supervisor(
    make_facts: Callable[..., HostFacts], make_mpi: Callable[[Family], Mpi]
) -> Callable[..., Supervisor]:
    """Return a function that makes the supervisor of a job on hosts with these slots."""

    def made(server: Any, selector: Any, mpirun: Mpirun, **hosts: int) -> Supervisor:
        job = Job(command=("x",), np=sum(hosts.values()), oversubscribe=True, start_timeout=patience(60.0))
        prepared: Any = SimpleNamespace(
            job=job,
            plan=place(job, tuple(make_facts(*host) for host in hosts.items())),
            mpi=make_mpi(Family.OPENMPI5),
            ssh=None,
            start_message=lambda rank, ports, **more: {},
        )
        channels = Channels(selector=selector, server=server, listener=Recorder())
        return Supervisor(prepared, channels, mpirun, early=60.0)  # type: ignore[arg-type]

    return made


@pytest.fixture
def supervised(supervisor: Callable[..., Supervisor]) -> Callable[..., Any]:
    """Return a function that supervises agents of these ranks, ``size`` of which are planned."""

    def run(size: int, ranks: list[int]) -> tuple[Supervisor, Agents]:
        mpirun = Mpirun()
        with selectors.PollSelector() as selector:
            server = AgentServer(selector, token=TOKEN, addresses=("127.0.0.1",), ranks=size)
            running = supervisor(server, selector, mpirun, localhost=size)
            agents = Agents(server.port, ranks, mpirun)
            agents.start()
            try:
                running.run(None)
            finally:
                server.close()
            agents.join(30)
        return running, agents

    return run


@contextmanager
def descriptors(soft: int) -> Iterator[None]:
    """This many descriptors, no more, may be open in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < soft:
        pytest.skip(f"this many descriptors are not allowed here: {soft} (ulimit -Hn says {before[1]})")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.process
def test_what_is_sent_grows_with_the_ranks_not_with_their_square(supervised: Any) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # two threads that answer each other, in one interpreter
    held_already = len(os.listdir("/proc/self/fd"))
    with descriptors(held_already + 2 * MANY + 100), ExitStack() as stack:
        stack.callback(sys.setswitchinterval, before)
        job, agents = supervised(MANY, list(range(MANY)))
    assert all(end.exit_code == 0 for end in job.ends()) and job.cause is None
    assert len(job.channels.listener.lines) == MANY
    assert agents.messages["start"] == agents.messages["bye"] == MANY
    # Every rank hears of the others' ends in a few rounds.
    assert agents.messages["status"] <= 10 * MANY and agents.bytes < 2000 * MANY


@pytest.mark.parametrize("rank", [1, 2, -1, 7], ids=["twice", "one too many", "negative", "far off"])
def test_a_rank_that_was_not_planned_ends_the_start_in_words(supervised: Any, rank: int) -> None:
    with pytest.raises(LaunchError, match=f"started a rank {rank} on localhost"):
        supervised(2, [1, rank])


def test_without_descriptors_agents_wait_and_nothing_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    with selectors.PollSelector() as selector:
        server = AgentServer(selector, token=TOKEN, addresses=("127.0.0.1",), ranks=2)
        sock = socket.create_connection(("127.0.0.1", server.port), 5)
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        with descriptors(highest + 1):
            blocked = all_descriptors()
            (key, _) = selector.select(5)[0]
            assert key.data == server.accept
            blocked += all_descriptors()  # what others have given back meanwhile
            server.accept()
            assert selector.select(0) == []
            assert "Too many open files" in server.tick() and server.tick() == ""
            for fd in blocked:
                os.close(fd)
        monkeypatch.setattr(agent_connections.time, "monotonic", lambda: float("inf"))
        server.tick()
        server.accept()
        assert len(sock.recv(protocol.NONCE)) == protocol.NONCE
        sock.close()
        server.close()


def all_descriptors() -> list[int]:
    """Open files until no more may be opened."""
    taken: list[int] = []
    with suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    return taken


def test_ranges() -> None:
    assert ranges([]) == [] and ranges([3]) == [[3, 3]]
    assert ranges([5, 0, 2, 1, 7, 6]) == [[0, 2], [5, 7]]


def test_of_a_silent_host_all_agents_are_given_up_at_once(supervisor: Callable[..., Supervisor]) -> None:
    """What was sent to the others of that host would start the time anew in which they may answer."""
    dropped = list[Any]()
    server = SimpleNamespace(drop=dropped.append, send=lambda connection, data: None)
    running = supervisor(server, None, Mpirun(), h1=2, h2=2)
    for state in running.ranks.values():
        state.connection = SimpleNamespace(rank=state.rank, silent=False)  # type: ignore[assignment]
    first = running.ranks[2].connection
    first.silent = True
    running.lost(first)
    assert [one.rank for one in dropped] == [3]
    assert [(loss.rank, loss.what) for loss in running.losses] == [(2, Lost.SILENT), (3, Lost.SILENT)]
    assert [state.connection is None for state in running.ranks.values()] == [False, False, True, True]
