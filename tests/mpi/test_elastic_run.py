"""Elastic jobs on one host: a rank that is killed is replaced, what ends a job ends it, nothing is left."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from ringleader.bench.run_file import read_any

pytestmark = pytest.mark.mpi

SCRIPT = """
import os, sys, time
import torch
import ringleader
import ringleader.torch as hvd
hvd.init()
print("pid", os.getpid(), "rank", hvd.rank(), flush=True)
model = torch.nn.Linear(4, 4)

@hvd.elastic.run
def train(state):
    while state.step < int(sys.argv[1]):
        total = hvd.allreduce(torch.ones(4), op=hvd.Sum, name="sum")
        assert int(total[0]) == hvd.size(), total
        if hvd.rank() == 0:
            print("step", state.step, "of", hvd.size(), flush=True)
        state.step += 1
        state.commit()
        time.sleep(0.02)
        ringleader.progress(samples=1)

state = hvd.elastic.TorchState(model=model, step=0)
train(state)
print("done at", state.step, flush=True)
"""


def start(workplace, python, *options, steps, ranks=2, script=SCRIPT):
    (workplace.tmp / "train.py").write_text(script)
    words = ("run", "--min-np", "1", "--max-np", str(ranks), "-n", str(ranks), *options)
    return workplace.ringleader(*words, "--workdir", str(workplace.tmp), python, "train.py", str(steps))


def first_steps(launcher, ranks=2, step=3):
    """Read until all ranks have said who they are and trained; return rank → process id."""
    pids, seen = {}, b""
    while line := launcher.stdout.readline():
        seen += line
        if found := re.search(rb"pid (\d+) rank (\d+)", line):
            pids[int(found[2])] = int(found[1])
        trained = re.search(rb"step (\d+) of", line)
        if len(pids) == ranks and trained and int(trained[1]) >= step:
            return pids
    raise AssertionError(seen + launcher.stderr.read())


@pytest.mark.smoke
def test_a_rank_that_is_killed_is_replaced_and_nothing_is_lost(workplace, python):
    """It is asked for its stacks as well, and the wire that is required carries the bytes."""
    options = ("--require", "shm", "--json-file", str(workplace.tmp / "out.json"))
    options = (*options, "--report", str(workplace.tmp / "record"))
    script = SCRIPT.replace("torch.ones(4)", "torch.ones(1 << 16)")
    launcher = start(workplace, python, *options, steps=150, script=script)
    os.kill(first_steps(launcher)[1], signal.SIGKILL)
    read_until(launcher, b" rank 1")
    first_steps(launcher, ranks=0)
    launcher.send_signal(signal.SIGQUIT)
    told, stacks = b"", set()
    while len(stacks) < 2:
        line = launcher.stderr.readline()
        assert line, told
        told += line
        stacks |= set(re.findall(rb"rank [01] \(localhost\)", line) if b"ringleader: rank" in line else ())
    out, err = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, told + err
    assert out.count(b"done at 150") == 2, (out, told + err)
    assert b"rank 1 on localhost was killed by SIGKILL" in told + err
    elastic = json.loads((workplace.tmp / "out.json").read_text())["elastic"]
    event = elastic["events"][-1]
    assert elastic["generations"] == 2 and elastic["worlds"] == 1 and elastic["ranks_started"] == 3
    assert event["kind"] == "generation" and event["size"] == 2 and event["commit"] > 0
    run = read_any(workplace.tmp / "record")
    assert [one.generation for one in run.starts] == [1, 2] and run.ended.exit_code == 0 and not run.faults
    assert [one.generation for one in run.events if one.kind == "generation"] == [1, 2]
    # By hand: all but the start, what was made after the commit, the time without ranks, and the end.
    first, last = run.lives[0][1][0], run.lives[1][1][-1]
    begins, failed = run.spans[0].begin, run.lives[0][1][-1].at
    resumed = next(one.begin for one in run.spans if one.begin >= run.starts[1].at)
    kept_until = min(run.starts[1].kept_until, failed)
    assert begins <= first.at < kept_until <= failed < run.starts[1].at <= resumed < last.at < run.ended.at
    by_hand = (kept_until - begins + last.at - resumed - run.wall_clock["pause"]) / run.ended.at
    assert run.goodput == (pytest.approx(by_hand), pytest.approx(by_hand)) and 0 < by_hand < 1
    assert not workplace.gone_within(5.0)


@pytest.mark.long
def test_a_rank_that_hangs_is_named_ended_and_replaced(workplace, python):
    script = SCRIPT.replace(
        "        state.step += 1\n",
        "        if state.step == 5 and os.environ['RINGLEADER_INCARNATION'] == '1':\n"
        "            time.sleep(1000)\n"
        "        state.step += 1\n",
    )
    options = ("--elastic-hang-seconds", "5", "--json-file", str(workplace.tmp / "out.json"))
    launcher = start(workplace, python, *options, steps=15, script=script)
    out, err = launcher.communicate(timeout=150)
    assert launcher.returncode == 0, err
    assert out.count(b"done at 15") == 2, (out, err)
    assert b"rank 1 on localhost" in err and b"did not answer in time: it hangs" in err, err
    elastic = json.loads((workplace.tmp / "out.json").read_text())["elastic"]
    assert elastic["generations"] == 2 and elastic["ranks_started"] == 3, elastic
    assert not workplace.gone_within(5.0)


@pytest.mark.long
def test_a_job_whose_hosts_are_all_out_waits_for_one_and_goes_on_from_a_file(workplace, python):
    options = ("--exclude-hosts", "--blacklist-cooldown-range", "1", "1", "--checkpoint-every", "1")
    options += ("--checkpoint-dir", str(workplace.tmp / "files"), "--json-file", str(workplace.tmp / "out"))
    launcher = start(workplace, python, *options, steps=60)
    os.kill(first_steps(launcher, step=10)[1], signal.SIGKILL)
    out, err = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, err
    assert out.count(b"done at 60") == 2 and b"step 0 of" not in out, (out, err)
    assert b"the host is left out" in err
    assert b"at least 1 ranks on 1 or more hosts are needed; waiting at most 600 s" in err
    events = json.loads((workplace.tmp / "out").read_text())["elastic"]["events"]
    kinds = "generation host_lost waiting host_added generation"
    assert [one["kind"] for one in events] == kinds.split()
    assert events[-1]["commit"] > 0, "every host was lost, and its memory: a file holds the commit"


PATIENT = """
import os, signal, time
def told(number, frame):
    print("rank", os.environ["RANK"], signal.Signals(number).name, flush=True)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
    signal.signal(number, told)
print("up", flush=True)
while True:
    time.sleep(0.1)
"""


def test_signals_to_the_launcher_reach_the_ranks_and_the_grace_ends(workplace, python):
    (workplace.tmp / "train.py").write_text(PATIENT)
    words = ("run", "-n", "2", "--min-np", "2", "--grace", "1", "--workdir", str(workplace.tmp))
    launcher = workplace.ringleader(*words, python, "train.py")
    read_until(launcher, *(2 * [b"up"]))
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        launcher.send_signal(number)
        read_until(launcher, *(f"rank {rank} {number.name}".encode() for rank in (0, 1)))
    launcher.send_signal(signal.SIGTERM)
    read_until(launcher, b"rank 0 SIGTERM", b"rank 1 SIGTERM")
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 143, err
    assert not workplace.gone_within(5.0)


def read_until(launcher, *words):
    """Read until each of the words has come, in any order."""
    left = list(words)
    while left:
        line = launcher.stdout.readline()
        assert line, (left, launcher.stderr.read())
        found = next((one for one in left if one in line), None)
        if found is not None:
            left.remove(found)


def test_ctrl_c_ends_everything(workplace, python):
    launcher = start(workplace, python, steps=100_000)
    first_steps(launcher)
    launcher.send_signal(signal.SIGINT)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 130, err
    assert not workplace.gone_within(5.0)


@pytest.mark.long
def test_a_host_agent_that_was_stopped_ends_with_the_job(workplace, python):
    """SIGSTOP to both processes of it: nothing may stay, neither processes nor shared memory."""
    script = "import sys; print('up', flush=True); sys.stdin.read()"
    words = ("run", "--min-np", "1", "-H", "localhost:1", "--workdir", str(workplace.tmp))
    launcher = workplace.ringleader(*words, python, "-c", script, stdin=subprocess.PIPE)
    assert b"up" in launcher.stdout.readline()
    agents = workplace.wait_for("host_agent.py", 2)
    parents = {pid: int(Path(f"/proc/{pid}/stat").read_text().split()[3]) for pid in agents}
    outer = next(pid for pid in agents if parents[pid] not in agents)
    inner = next(pid for pid in agents if parents[pid] == outer)
    for pid in (outer, inner):  # a rank's agent, forked by them, has their name
        os.kill(pid, signal.SIGSTOP)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 0, err
    assert not workplace.gone_within(20.0)
    for job in workplace.job_directories():
        assert not Path(f"/dev/shm/ringleader-{job}").exists()


def replace(script, text):
    """Write another script in its place; it is never seen half written."""
    new = script.with_suffix(".new")
    new.write_text(f"#!/bin/sh\n{text}\n")
    new.chmod(0o755)
    new.rename(script)


@pytest.mark.long
def test_sighup_has_a_running_job_probe_its_hosts(workplace, python):
    hosts = workplace.tmp / "hosts.sh"
    replace(hosts, "echo localhost:1")
    (workplace.tmp / "train.py").write_text(SCRIPT)
    words = ("run", "--host-discovery-script", str(hosts), "--min-np", "1", "--max-np", "2")
    launcher = workplace.ringleader(*words, "--workdir", str(workplace.tmp), python, "train.py", "100000")
    first_steps(launcher, ranks=1)
    replace(hosts, "echo localhost:2")
    launcher.send_signal(signal.SIGHUP)
    read_until(launcher, b"of 2")
    launcher.send_signal(signal.SIGINT)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 130 and f"SIGHUP: {hosts} is probed".encode() in err, err
