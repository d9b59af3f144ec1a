"""Host agents over ssh in the tests' lab, and what becomes of one that nothing reaches any more."""

import os
import tempfile
import time
from pathlib import Path

import pytest
from tests.time_limits import factor
from tests.unit.host_agent_world import Launcher, alive, below, gone, host_facts

from ringleader.lab import hosts as lab_hosts
from ringleader.launch.launch_plan import local_address_towards
from ringleader.launch.ssh.connections import SshConnections
from ringleader.plan.job import Host, Ssh

pytestmark = pytest.mark.lab
FROZEN, LOST = 2.0, 6.0
"""Seconds of silence."""
COMMITS = """
import os, time
from ringleader.agents.elastic.commit_memory import CommitMemory
from ringleader.agents.elastic.generation_client import RankConnection
agent = RankConnection(os.environ["RINGLEADER_HOST_AGENT"], int(os.environ["RINGLEADER_INCARNATION"]))
memory = CommitMemory(lambda nbytes: agent.commit_memory(nbytes)[1], agent.committed)
print("begin", flush=True)
for number in range(1, 100000):
    memory.buffer(1, number=number)[:] = b"x"
    memory.set_number(number, 1)
    with open(os.environ["TIMES"], "a") as file:
        file.write(f"{time.monotonic()}\\n")
    time.sleep(0.05)
"""


@pytest.fixture
def place():
    with tempfile.TemporaryDirectory(prefix="rl-t-", dir="/tmp") as made:
        yield Path(made)


def launcher(lab, place: Path, name: str = "", times: float = 1.0) -> Launcher:
    """``times``: how many times longer silence may last."""
    host = lab.hosts[1]
    address = local_address_towards(host.address)
    assert address is not None
    known = Host(name=name or host.name)
    ssh = SshConnections(Ssh(config=lab.ssh_config), (known,), environ=os.environ, base=place)
    facts = host_facts(known.name, is_local=False)
    made = Launcher(
        place,
        ssh=ssh,
        host=facts,
        address=address,
        silence=4.0 * times,
        freeze_after=FROZEN,
        lost_after=LOST * times,
    )
    return made


def link(lab, up: bool) -> None:
    (lab_hosts.heal if up else lab_hosts.cut)(lab, lab.hosts[1])


@pytest.mark.long
def test_a_host_that_hears_nothing_freezes_its_commits_and_then_ends_its_ranks(lab, place: Path) -> None:
    made = launcher(lab, place)
    try:
        made.begin()
        made.prepare(["ringleader.agents.elastic.commit_memory"])
        made.until("prepared")
        script, times = place / "script.py", place / "times"
        script.write_text(COMMITS)
        rank = made.start(1, str(script), env={"TIMES": str(times)}, lost_after=60.0)
        made.wait(lambda: rank.stdout and times.exists(), "its first commits")
        assert made.until("spawned").warm
        pids = [made.outer, made.pid, *below(made.pid)]
        assert len(pids) == 5
        cut = time.monotonic()
        link(lab, up=False)
        assert gone(pids, 3 * LOST), [pid for pid in pids if alive(pid)]
        ended = time.monotonic()
        last = float(times.read_text().split()[-1])
        assert last < cut + LOST - 1 and ended > cut + FROZEN, (last - cut, ended - cut)
        assert made.until("lost").silent
    finally:
        link(lab, up=True)
        made.close()
        made.agents.ssh.close()


def test_a_link_that_comes_back_in_time_costs_nothing(lab, place: Path) -> None:
    made = launcher(lab, place, times=factor())
    try:
        made.begin()
        link(lab, up=False)
        time.sleep(FROZEN + 0.8)
        link(lab, up=True)
        assert made.until("commits_frozen", frozen=True).host == lab.hosts[1].name
        made.until("commits_frozen", frozen=False)
        made.bye()
        assert gone([made.outer, made.pid], 8.0)
    finally:
        link(lab, up=True)
        made.close()
        made.agents.ssh.close()
