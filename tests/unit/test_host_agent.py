"""A real host agent with ranks, cold and warm, below a small launcher: output, ends, signals, kills."""

import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest
from tests.unit.host_agent_world import HOST, Launcher, alive, below, gone, host_facts

from ringleader.agents import process_tree
from ringleader.agents.elastic.generation_client import AgentGoneError, LeaveError, ProxyConnection

pytestmark = pytest.mark.process
COMMITTING = """
    import os, time
    from ringleader.agents.elastic.commit_memory import CommitMemory
    from ringleader.agents.elastic.generation_client import RankConnection
    number = int(os.environ["RINGLEADER_INCARNATION"]) + 1
    agent = RankConnection(os.environ["RINGLEADER_HOST_AGENT"], number)
    memory = CommitMemory(lambda nbytes: agent.commit_memory(nbytes)[1], agent.committed)
    memory.buffer(1 << 20, number=number)[:4] = b"here"
    memory.set_number(number, 1 << 20)
    print(number, flush=True)
    [time.sleep(0.1) for _ in range(6000)]
"""
"""Scripts here sleep in short pieces: a signal that arrives just before a sleep is handled after it."""
LEFT = 8.0
"""Seconds in which everything of a host has to be gone, on a busy machine; 5 on one that is not."""


@pytest.fixture
def launcher(tmp_path):
    made = Launcher(tmp_path)
    made.begin()
    yield made
    pids = [made.outer, *below(made.outer)]
    made.close()
    assert gone(pids, LEFT), [pid for pid in pids if alive(pid)]
    assert not made.directory.parent.exists()
    assert not list(Path("/dev/shm").glob(f"*{made.directory.name}*"))


@pytest.fixture
def warm(launcher):
    launcher.prepare()
    launcher.until("prepared")
    return launcher


def script(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def sleeping(launcher, tmp_path, incarnation, before="", *, warm=True):
    """Start a rank that prints what its script does first, or 1, and sleeps; wait for its line."""
    lines = f"{textwrap.dedent(before) or 'print(1, flush=True)'}\nimport time\n"
    path = script(tmp_path, f"{lines}[time.sleep(0.1) for _ in range(6000)]")
    rank = launcher.start(incarnation, path, warm=warm)
    launcher.wait(lambda: b"\n" in rank.stdout, "its line")
    return rank


CHILD = """
    import subprocess
    print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
"""


def fork_server(warm):
    """Return the first child of the host agent: others are forked from it."""
    return min(pid for pid, parent in process_tree.parents().items() if parent == warm.pid)


def standing_by(warm):
    """Return the rank agent that stands by, when there is one.

    A rank whose agent was killed is the host agent's child for a moment, too.
    """
    found = list[int]()

    def there():
        known = {rank.hello["pid"] for rank in warm.ranks.values() if rank.hello}
        known |= {started["pid"] for rank in warm.ranks.values() if (started := rank.words("started"))}
        children = [pid for pid, parent in process_tree.parents().items() if parent == warm.pid]
        found[:] = sorted(set(children) - known - {fork_server(warm)})
        return found

    warm.wait(there, "a rank agent that stands by")
    return found[0]


@pytest.mark.parametrize("cold", [True, False])
def test_a_rank_runs_and_its_output_and_end_arrive(warm, tmp_path, cold):
    text = """
        import os, sys
        print(sys.argv[1:], os.getcwd(), os.environ["OF_THE_RANK"], __name__)
        sys.stderr.write("to stderr\\n")
        sys.exit(7)
    """
    path = script(tmp_path, text)
    rank, ended = warm.run(4, path, "-x", "y z", warm=not cold, cwd=str(tmp_path), env={"OF_THE_RANK": "ü"})
    assert rank.stdout.decode() == f"['-x', 'y z'] {tmp_path} ü __main__\n"
    assert rank.stderr == b"to stderr\n"
    assert (ended["exit_code"], ended["signal"]) == (7, None)
    assert warm.until("spawned", incarnation=4).warm is not cold
    assert warm.until("rank_agent_ended", incarnation=4).exit_code == 0


@pytest.mark.parametrize("cold", [True, False])
def test_a_killed_rank_is_told_and_nothing_of_it_is_left(warm, tmp_path, cold):
    rank = sleeping(warm, tmp_path, 1, CHILD, warm=not cold)
    os.kill(rank.words("started")["pid"], signal.SIGKILL)
    assert warm.finish(rank)["signal"] == signal.SIGKILL
    assert gone([int(rank.stdout)], LEFT)


@pytest.mark.parametrize("cold", [True, False])
def test_a_killed_rank_agent_takes_its_rank_with_it(warm, tmp_path, cold):
    rank = sleeping(warm, tmp_path, 1, CHILD, warm=not cold)
    pids = below(rank.hello["pid"])
    assert len(pids) == 2
    os.kill(rank.hello["pid"], signal.SIGKILL)
    assert warm.until("rank_agent_ended", incarnation=1).signal == signal.SIGKILL
    assert gone(pids, LEFT)
    assert warm.run(2, script(tmp_path, "print(2)"))[0].stdout == b"2\n"


def test_ranks_outlive_a_killed_fork_server_which_starts_again(warm, tmp_path):
    rank = sleeping(warm, tmp_path, 1)
    standby = standing_by(warm)
    os.kill(fork_server(warm), signal.SIGKILL)
    assert gone([standby], LEFT)
    assert "signal 9" in warm.until("not_prepared").why
    warm.until("prepared")
    other = warm.start(2, script(tmp_path, "print(2)"))
    assert warm.finish(other)["exit_code"] == 0 and warm.until("spawned", incarnation=2).warm
    assert alive(rank.hello["pid"]) and rank.words("ended") is None
    warm.kill(1)
    assert warm.finish(rank)["signal"] == signal.SIGKILL


def test_a_killed_host_agent_leaves_nothing(warm, tmp_path):
    for incarnation in (1, 2):
        sleeping(warm, tmp_path, incarnation, warm=incarnation == 2)
    standing_by(warm)
    pids = below(warm.pid)
    assert len(pids) == 6  # the fork server, two agents, one that stands by, two ranks
    os.kill(warm.pid, signal.SIGKILL)
    assert not warm.until("lost").silent
    assert gone(pids, LEFT)
    warm.begin()  # another can be started on this host
    assert warm.run(3, script(tmp_path, "print(3)"))[0].stdout == b"3\n"


@pytest.mark.parametrize("whose", ["outer process", "launcher"])
def test_the_end_of_the_outer_process_or_the_launcher_ends_everything(warm, tmp_path, whose):
    sleeping(warm, tmp_path, 1)
    pids = [warm.pid, *below(warm.pid)]
    if whose == "launcher":
        warm.close()
    else:
        os.kill(warm.outer, signal.SIGKILL)
        warm.until("lost")
        assert not [one for one in warm.events if one.do == "rank_agent_ended"], "the host is lost at once"
    assert gone(pids, LEFT)


def test_proxies_are_heard_and_hear_of_the_agents_end(launcher, tmp_path):
    socket_path = str(next(launcher.directory.glob("*/host_agent-0.sock")))
    proxy = ProxyConnection(socket_path, world=2, world_rank=1, size=4, library="libmpi")
    ready = launcher.until("proxy_ready")
    assert (ready.world, ready.world_rank, ready.size, ready.pid) == (2, 1, 4, os.getpid())
    launcher.agents.tell_all(do="end_world", world=2)
    launcher.turn()
    with pytest.raises(LeaveError):
        proxy.order(30.0)
    os.kill(launcher.pid, signal.SIGKILL)
    with pytest.raises(AgentGoneError):
        proxy.order(30.0)
    proxy.close()
    launcher.until("lost")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_the_agent_is_a_notice(launcher, number):
    os.kill(launcher.pid, number)
    assert launcher.until("notice").why == number.name
    os.kill(launcher.outer, number)
    assert launcher.until("notice").why == number.name


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.parametrize("to_the_agent", [True, False])
def test_a_signal_to_end_that_is_nobodys_order_is_a_notice(warm, tmp_path, cold, to_the_agent):
    text = """
        import multiprocessing, subprocess, sys, time
        text = "print(2, flush=True); import time; time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
        forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        forked.start()
        child.stdout.readline()
        child.terminate(), forked.terminate()
        print(child.wait(), forked.join() or forked.exitcode, flush=True)
    """
    rank = sleeping(warm, tmp_path, 1, text, warm=not cold)
    assert rank.stdout == b"-15 -15\n"
    started = rank.words("started")
    os.kill(rank.hello["pid"] if to_the_agent else started["pid"], signal.SIGTERM)
    assert warm.until("notice").why == "SIGUSR1"
    assert rank.words("ended") is None and alive(started["pid"])
    warm.tell(rank, do="stop", grace=60.0)
    assert warm.finish(rank, 30.0)["signal"] == signal.SIGTERM


def test_a_handler_of_the_scripts_own_counts(warm, tmp_path):
    text = """
        import signal, sys
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(5))
        print(1, flush=True)
    """
    rank = sleeping(warm, tmp_path, 1, text)
    os.kill(rank.words("started")["pid"], signal.SIGTERM)
    assert warm.finish(rank)["exit_code"] == 5
    assert [event for event in warm.events if event.do == "notice"] == []


def test_a_second_agent_on_one_machine_is_refused(launcher):
    launcher.agents.start(host_facts("other"))
    failed = launcher.until("failed", host="other")
    assert "runs on this machine already" in failed.why


@pytest.mark.parametrize(
    ("python", "preload", "said"),
    [
        (sys.executable, ["no_such_module"], "import no_such_module: ModuleNotFoundError"),
        ("/no/python", [], "/no/python: No such file"),
    ],
)
def test_a_fork_server_that_cannot_start_is_told_and_ranks_start_cold(
    launcher, tmp_path, python, preload, said
):
    launcher.agents.tell(HOST, do="prepare", python=python, preload=preload, env={}, cwd="/")
    assert said in launcher.until("not_prepared").why
    rank, ended = launcher.run(1, script(tmp_path, "print(1)"))
    assert (rank.stdout, ended["exit_code"], launcher.until("spawned").warm) == (b"1\n", 0, False)


def test_nothing_grows_over_many_ranks(warm, tmp_path):
    """A sample of the five hundred below."""
    counts = []

    def held():
        return len(os.listdir(f"/proc/{warm.pid}/fd"))

    for incarnation in range(12):
        rank = sleeping(warm, tmp_path, incarnation, warm=incarnation % 2 == 0)
        warm.kill(incarnation)
        warm.finish(rank)
        warm.until("rank_agent_ended", incarnation=incarnation)
        counts.append(held())
    # What ended last is let go of a moment after its end was told.
    warm.wait(lambda: held() <= counts[1], f"descriptors to be no more than {counts[1]}: {counts}")
    assert [event for event in warm.events if event.do == "not_spawned"] == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_five_hundred_killed_ranks_leave_nothing_behind(warm, tmp_path):
    """Descriptors and memory of the agent and the fork server, and processes of the host, as after fifty."""
    path = script(tmp_path, COMMITTING)

    def resident(pid):
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        return int(fields[1]) - int(fields[2])  # pages, without those shared with files

    def state():
        standing_by(warm)
        server = fork_server(warm)
        descriptors = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (warm.pid, server)]
        return (*descriptors, len(below(warm.outer)), resident(warm.pid) + resident(server))

    states = []
    for incarnation in range(500):
        rank = warm.start(incarnation, path, warm=incarnation % 4 != 3)
        warm.wait(lambda rank=rank: rank.stdout, "its line")
        victim = rank.words("started") if incarnation % 3 else rank.hello
        os.kill(victim["pid"], signal.SIGKILL)
        if incarnation % 3:
            assert warm.finish(rank)["signal"] == signal.SIGKILL
        warm.until("rank_agent_ended", incarnation=incarnation)
        warm.events.clear()
        if incarnation in (50, 499):
            states.append(state())
    first, last = states
    assert last[:3] == first[:3]
    assert last[3] - first[3] < 256, states  # pages: 1 MiB
