"""Host agents as the launcher knows them: who is taken for which host's, how long a host continues alone."""

import json
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from ringleader.agents.elastic.commit_memory import FROZEN_SECONDS
from ringleader.agents.protocol import MESSAGE, ProtocolError
from ringleader.errors import RefusedError
from ringleader.launch.elastic import elastic_hosts, elastic_session, host_agents
from ringleader.launch.elastic.elastic_hosts import ElasticHosts, HostStart
from ringleader.launch.elastic.elastic_session import ElasticJob, alike_in_order
from ringleader.launch.elastic.host_agents import HostAgents, ended_after
from ringleader.launch.elastic.membership_state import AT_ONCE
from ringleader.launch.ssh.connections import Reply
from ringleader.plan.job import Host, Job
from ringleader.plan.rank_placement import HostFacts

HELLO = {
    "do": "host_hello", "host": "h", "hostname": "h", "identity": "i", "pid": 1, "cpus": [0], "socket": "s",
}  # fmt: skip


class Connection:
    """One of an agent."""

    silent = False


def agents_of(place: Path, dropped: list[Any]) -> HostAgents:
    server: Any = SimpleNamespace(drop=dropped.append, send=lambda connection, message: None)
    return HostAgents(
        server=server, control="", token="t", directory=str(place), freeze_after=10.0, environ={}
    )


def expect(agents: HostAgents) -> None:
    agents._starting["h"] = [time.monotonic() + 60]


def test_an_agent_that_takes_over_from_one_that_was_let_go_is_heard(tmp_path: Path) -> None:
    """The one before may still end its ranks, with its connection open."""
    dropped: list[Any] = []
    first, second, third = Connection(), Connection(), Connection()
    agents: Any = agents_of(tmp_path, dropped)
    expect(agents)
    agents.hello(first, HELLO)
    expect(agents)
    with pytest.raises(ProtocolError):
        agents.hello(second, HELLO)
    assert "h" in agents._starting and not dropped, "one is there; another one may come still"
    agents.bye("h")
    expect(agents)
    agents.hello(third, HELLO)
    assert dropped == [first] and agents.hosts == ("h",)
    assert agents.host(third) == "h" and agents.host(first) is None
    assert agents.lost(third) == ("h", "its host agent has ended") and agents.hosts == ()


def test_the_end_of_an_agent_that_was_let_go_is_no_loss(tmp_path: Path) -> None:
    agents: Any = agents_of(tmp_path, [])
    first = Connection()
    expect(agents)
    agents.hello(first, HELLO)
    agents.bye("h")
    expect(agents)  # and the host is on offer again
    assert agents.lost(first) is None
    agents.hello(Connection(), HELLO)
    assert agents.hosts == ("h",)


def test_what_an_agent_that_was_let_go_says_of_its_host_does_not_count(tmp_path: Path) -> None:
    """Another agent of the host has neither its commits nor its fork server, and does not go away with it."""
    agents: Any = agents_of(tmp_path, [])
    connection = Connection()
    expect(agents)
    agents.hello(connection, HELLO)

    def says(**words: Any) -> Any:
        return agents.frame(connection, MESSAGE, json.dumps(words).encode())

    assert says(do="committed", number=3, nbytes=1) == {"do": "committed", "number": 3, "nbytes": 1}
    with pytest.raises(ProtocolError, match="h: committed without number, nbytes"):
        says(do="committed")
    assert says(do="nothing that we know") is None
    agents.bye("h")
    assert says(do="committed", number=4, nbytes=1) is None
    assert says(do="notice", why="SIGTERM") is None
    assert says(do="checkpoint_loading", path="/files/commit") is None
    assert says(do="checkpoint_loaded", number=3, path="", refused=[]) is None
    assert says(do="rank_gone", incarnation=7) == {"do": "rank_gone", "incarnation": 7}


@pytest.mark.parametrize(("lost_after", "expected"), [(2, 6), (5, 15), (10, 30), (120, 140)])
def test_hosts_end_their_ranks_when_the_launcher_has_given_them_up(
    lost_after: float, expected: float
) -> None:
    assert ended_after(lost_after) == expected > lost_after
    assert expected - lost_after < FROZEN_SECONDS, "no commit fails on a host whose link returns in time"


@pytest.mark.parametrize("lost_after", [5.0, 10.0, 120.0])
def test_hosts_freeze_their_commits_when_the_launcher_gives_them_up(
    lost_after: float, tmp_path: Path
) -> None:
    job = Job(command=("train",), np=1, lost_after=lost_after)
    context: Any = SimpleNamespace(
        job=job, addresses=("127.0.0.1",), token="t", directory=str(tmp_path), environ={}, listener=None
    )
    server: Any = SimpleNamespace(port=1)
    config = ElasticHosts(context, server, lambda do: None, wake=-1).agents.config
    assert (config["freeze_after"], config["lost_after"]) == (lost_after, ended_after(lost_after))


def hosts_of(tmp_path: Path, told: list[Any]) -> ElasticHosts:
    context: Any = SimpleNamespace(
        job=Job(command=("train",), np=1),
        addresses=("127.0.0.1",),
        token="t",
        directory=str(tmp_path),
        environ={},
        listener=None,
    )
    server: Any = SimpleNamespace(port=1, send=lambda connection, message: None)
    return ElasticHosts(context, server, lambda do, **words: told.append((do, words)), wake=-1)


def test_a_host_that_waits_for_its_turn_to_start_is_not_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    hosts = hosts_of(tmp_path, told)
    asked: SimpleQueue[str] = SimpleQueue()

    def run_on_host(host: HostFacts, *_: Any, **__: Any) -> Reply:
        asked.put(host.host.name)
        return Reply(exit_code=0, stdout=b"", stderr="")

    monkeypatch.setattr(host_agents, "run_on_host", run_on_host)
    for _ in range(AT_ONCE):
        hosts._gate.acquire()
        hosts.agents.gate.acquire()
    facts: dict[str, Any] = {"hostname": "h", "identity": "i", "is_local": True, "cpus": (0,)}
    waits, gone = (HostFacts(host=Host(name=name), **facts) for name in ("waits", "gone"))
    hosts.agents.start(waits, seconds=0.0)
    hosts.agents.start(gone, seconds=0.0)
    hosts.agents.bye("gone")
    time.sleep(0.01)
    assert hosts.agents.failed() == [] and asked.empty()
    for _ in range(2):
        hosts.agents.gate.release()  # hosts that are probed are in nobody's way
    assert asked.get(timeout=60) == "waits"
    time.sleep(0.01)
    assert hosts.agents.failed() == [("waits", "its host agent started and did not report")]
    assert asked.empty()


def test_hosts_are_looked_at_with_enough_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    hosts = hosts_of(tmp_path, told)
    allowed: list[int] = []

    def allow_open_files(needed: int, pid: int) -> None:
        allowed.append(needed)
        raise RefusedError("too few", where="open files")

    monkeypatch.setattr(elastic_hosts, "allow_open_files", allow_open_files)
    for number in range(1000):
        hosts._starts[f"h{number}"] = HostStart()
        hosts._looks.append((f"h{number}", Job(command=("train",), np=1), hosts._starts[f"h{number}"]))
    hosts.look()
    assert allowed == [128 + 1000 + 8 * AT_ONCE]
    assert len(told) == 1000 and told[0][0] == "host_refused" and "too few" in told[0][1]["why"]


def batches(*messages: str) -> list[str]:
    """Return what is decided together. ``a.rank_waiting 1``: of rank 1 on host a; a proxy has its world."""
    found = []
    for text in messages:
        host, do, number = text.replace(".", " ").split()
        name = {"proxy": "world", "commi": "number"}.get(do[:5], "incarnation")
        found.append({"do": do, "host": host, name: int(number), "text": text})
    return [", ".join(one["text"] for one in some) for some in alike_in_order(found)]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (["a.rank_waiting 1", "a.committed 8"], ["a.rank_waiting 1", "a.committed 8"]),
        (["a.rank_waiting 1", "b.committed 8"], ["b.committed 8", "a.rank_waiting 1"]),
        (["a.proxy_ready 1", "b.proxy_gone 1"], ["a.proxy_ready 1", "b.proxy_gone 1"]),
        (["a.rank_waiting 1", "a.rank_gone 1"], ["a.rank_waiting 1", "a.rank_gone 1"]),
        (
            [*(f"a.{do} {rank}" for rank in (1, 2) for do in ("rank_detached", "rank_waiting"))],
            ["a.rank_detached 1, a.rank_detached 2", "a.rank_waiting 1, a.rank_waiting 2"],
        ),
    ],
)
def test_what_is_decided_together(messages: list[str], expected: list[str]) -> None:
    """What is said of one rank, one world or the commits of one host keeps its order."""
    assert batches(*messages) == expected


def test_a_host_agent_that_fails_is_lost_with_its_own_words(tmp_path: Path) -> None:
    told: list[Any] = []
    hosts_of(tmp_path, told).heard("h", {"do": "host_failed", "why": "OSError: no room (loop.py:7)"})
    assert told == [
        ("host_lost", {"host": "h", "why": "its host agent failed: OSError: no room (loop.py:7)"})
    ]


def test_a_host_agent_that_fails_before_its_hello_is_heard(tmp_path: Path) -> None:
    told: list[Any] = []
    job: Any = SimpleNamespace(hosts=hosts_of(tmp_path, told))
    expect(job.hosts.agents)
    with pytest.raises(ProtocolError):
        ElasticJob.hello(job, Connection(), {"do": "host_failed", "host": "h", "why": "no room"})  # type: ignore[arg-type]
    job.hosts.tick(time.monotonic())
    assert told == [("host_refused", {"host": "h", "why": "its host agent failed: no room"})]


def test_a_host_is_waited_for_while_it_reads_a_file(tmp_path: Path) -> None:
    told: list[Any] = []
    hosts = hosts_of(tmp_path, told)
    hosts._starts["h"] = start = HostStart()
    start.until = 0.0
    hosts.heard("h", {"do": "checkpoint_loading", "path": "/files/commit"})
    hosts.tick(time.monotonic())
    assert not told and "h" in hosts._starts


class Busy(ElasticJob):
    """The loop's side of deciding: nothing is obeyed, and deciding takes two seconds of its clock."""

    def __init__(self) -> None:
        self.now, self.decided = 100.0, list[str]()
        self.hosts = self.worlds = SimpleNamespace(tick=lambda now: None, look=lambda: None)  # type: ignore[assignment]
        self.state: Any = SimpleNamespace(generation=1, result=None)
        self.flow: Any = SimpleNamespace(held=False, tick=lambda: None)
        self._messages, self._deciding, self.alarms = deque(), False, {}
        self._rests_until, self._soonest, self._finished_at = float("-inf"), None, None

    def clock(self) -> float:
        return self.now

    def decide(self, state: Any, messages: Any, now: float) -> list[Any]:
        self.decided.append(" ".join(one["do"] for one in messages))
        self.now += 2.0
        return []


def test_what_many_report_waits_while_deciding_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Busy()
    monkeypatch.setattr(elastic_session, "decide", job.decide)
    monkeypatch.setattr(elastic_session, "deadlines_of", lambda state: iter(()))
    monkeypatch.setattr(time, "monotonic", job.clock)
    for _ in range(2):
        job.take("rank_attached", incarnation=1)
    assert not job.decided and job.longest_wait() == 0.0, "at the next turn"
    job._decide()
    assert job.decided == ["rank_attached rank_attached"] and job.now == 102.0
    job.take("rank_waiting", incarnation=1)
    job.now += 4 * 2.0 - 0.1
    assert 0.1 <= job.longest_wait() < 0.11 and len(job.decided) == 1
    job.take("notice", host="h", why="SIGTERM")
    assert job.decided[1:] == ["rank_waiting", "notice"], "what one reports waits for nothing"
