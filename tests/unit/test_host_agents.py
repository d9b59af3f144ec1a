"""Host agents as the launcher knows them: who is taken for which host's, how long a host continues alone."""

import json
import time
from collections import deque
from queue import SimpleQueue
from types import SimpleNamespace

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


def agents_of(place, dropped):
    server = SimpleNamespace(drop=dropped.append, send=lambda connection, message: None)
    return HostAgents(
        server=server, control="", token="t", directory=str(place), freeze_after=10.0, environ={}
    )


def expect(agents):
    agents._starting["h"] = [time.monotonic() + 60]


def test_an_agent_that_takes_over_from_one_that_was_let_go_is_heard(tmp_path):
    """The one before may still end its ranks, with its connection open; its end is no loss."""
    dropped = []
    first, second, third = Connection(), Connection(), Connection()
    agents = agents_of(tmp_path, dropped)
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
    expect(agents)
    agents.hello(first, HELLO)
    agents.bye("h")
    expect(agents)  # and the host is on offer again
    assert agents.lost(first) is None
    agents.hello(third, HELLO)
    assert agents.hosts == ("h",)


def test_what_an_agent_that_was_let_go_says_of_its_host_does_not_count(tmp_path):
    """Another agent of the host has neither its commits nor its fork server, and does not go away with it."""
    agents = agents_of(tmp_path, [])
    connection = Connection()
    expect(agents)
    agents.hello(connection, HELLO)

    def says(**words):
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


@pytest.mark.parametrize(("lost_after", "expected"), [(2, 6), (10, 30), (120, 140)])
def test_hosts_end_their_ranks_when_the_launcher_has_given_them_up(lost_after, expected, tmp_path):
    assert ended_after(lost_after) == expected > lost_after
    assert expected - lost_after < FROZEN_SECONDS, "no commit fails on a host whose link returns in time"
    config = hosts_of(tmp_path, [], lost_after=lost_after).agents.config
    assert (config["freeze_after"], config["lost_after"]) == (lost_after, expected)


def hosts_of(tmp_path, told, **words):
    context = SimpleNamespace(
        job=Job(command=("train",), np=1, **words),
        addresses=("127.0.0.1",),
        token="t",
        directory=str(tmp_path),
        environ={},
        listener=None,
    )
    server = SimpleNamespace(port=1, send=lambda connection, message: None)
    return ElasticHosts(context, server, lambda do, **words: told.append((do, words)), wake=-1)


def test_hosts_are_looked_at_with_enough_open_files_and_waited_for_while_they_read(tmp_path, monkeypatch):
    told, allowed = [], []
    hosts = hosts_of(tmp_path, told)
    hosts._starts["h"] = start = HostStart()
    start.until = 0.0
    hosts.heard("h", {"do": "checkpoint_loading", "path": "/files/commit"})
    hosts.tick(time.monotonic())
    assert not told and hosts._starts.pop("h") is start

    def allow_open_files(needed, pid):
        allowed.append(needed)
        raise RefusedError("too few", where="open files")

    monkeypatch.setattr(elastic_hosts, "allow_open_files", allow_open_files)
    for number in range(1000):
        hosts._starts[f"h{number}"] = HostStart()
        hosts._looks.append((f"h{number}", Job(command=("train",), np=1), hosts._starts[f"h{number}"]))
    hosts.look()
    assert allowed == [128 + 1000 + 8 * AT_ONCE]
    assert len(told) == 1000 and told[0][0] == "host_refused" and "too few" in told[0][1]["why"]


def test_a_host_that_waits_for_its_turn_to_start_is_not_late(tmp_path, monkeypatch):
    told = []
    hosts = hosts_of(tmp_path, told)
    asked = SimpleQueue()

    def run_on_host(host, *_, **__):
        asked.put(host.host.name)
        return Reply(exit_code=0, stdout=b"", stderr="")

    monkeypatch.setattr(host_agents, "run_on_host", run_on_host)
    for _ in range(AT_ONCE):
        hosts._gate.acquire()
        hosts.agents.gate.acquire()
    facts = {"hostname": "h", "identity": "i", "is_local": True, "cpus": (0,)}
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


def batches(*messages):
    """Return what is decided together. ``a.rank_waiting 1``: of rank 1 on host a; a proxy has its world."""
    found = []
    for text in messages:
        host, do, number = text.replace(".", " ").split()
        name = {"proxy": "world", "commi": "number"}.get(do[:5], "incarnation")
        found.append({"do": do, "host": host, name: int(number), "text": text})
    return [", ".join(one["text"] for one in some) for some in alike_in_order(found)]


def test_what_is_decided_together():
    """What is said of one rank, one world or the commits of one host keeps its order."""
    for messages, expected in (
        (["a.rank_waiting 1", "a.committed 8"], ["a.rank_waiting 1", "a.committed 8"]),
        (["a.rank_waiting 1", "b.committed 8"], ["b.committed 8", "a.rank_waiting 1"]),
        (["a.proxy_ready 1", "b.proxy_gone 1"], ["a.proxy_ready 1", "b.proxy_gone 1"]),
        (
            [*(f"a.{do} {rank}" for rank in (1, 2) for do in ("rank_detached", "rank_waiting"))],
            ["a.rank_detached 1, a.rank_detached 2", "a.rank_waiting 1, a.rank_waiting 2"],
        ),
    ):
        assert batches(*messages) == expected


def test_a_host_agent_that_fails_is_lost_with_its_own_words(tmp_path):
    told = []
    hosts_of(tmp_path, told).heard("h", {"do": "host_failed", "why": "OSError: no room (loop.py:7)"})
    assert told == [
        ("host_lost", {"host": "h", "why": "its host agent failed: OSError: no room (loop.py:7)"})
    ]


def test_a_host_agent_that_fails_before_its_hello_is_heard(tmp_path):
    told = []
    job = SimpleNamespace(hosts=hosts_of(tmp_path, told))
    expect(job.hosts.agents)
    with pytest.raises(ProtocolError):
        ElasticJob.hello(job, Connection(), {"do": "host_failed", "host": "h", "why": "no room"})
    job.hosts.tick(time.monotonic())
    assert told == [("host_refused", {"host": "h", "why": "its host agent failed: no room"})]


class Busy(ElasticJob):
    """The loop's side of deciding: nothing is obeyed, and deciding takes two seconds of its clock."""

    def __init__(self):
        self.now, self.decided = 100.0, list[str]()
        self.hosts = self.worlds = SimpleNamespace(tick=lambda now: None, look=lambda: None)
        self.state = SimpleNamespace(generation=1, result=None)
        self.flow = SimpleNamespace(held=False, tick=lambda: None)
        self._messages, self._deciding, self.alarms = deque(), False, {}
        self._rests_until, self._soonest, self._finished_at = float("-inf"), None, None

    def clock(self):
        return self.now

    def decide(self, state, messages, now):
        self.decided.append(" ".join(one["do"] for one in messages))
        self.now += 2.0
        return []


def test_what_many_report_waits_while_deciding_takes_long(monkeypatch):
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
