"""A job on two hosts: its signals reach both, and a host that is cut off cleans up by itself."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.time_limits import until

pytestmark = [pytest.mark.lab, pytest.mark.mpi]

TRAIN = """
import signal, sys, time
from mpi4py import MPI
signal.signal(signal.SIGUSR1, lambda number, frame: print("heard", flush=True))
MPI.COMM_WORLD.Barrier()
print("up", flush=True)
while True:
    time.sleep(0.05)  # MARK
"""
KEY = "from ringleader.agents import rank_identity as i; print(i.host_key(i.host_identity()))"


def ranks(mark):
    """Return the living processes of the script by rank: (process id, state)."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() not in (entry / "cmdline").read_bytes():
                continue
            environ = dict(
                word.split(b"=", 1) for word in (entry / "environ").read_bytes().split(b"\0") if word
            )
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if b"RANK" in environ and state != "Z":
            found[int(environ[b"RANK"])] = int(entry.name), state
    return found


def said(launcher, words, count):
    """Read lines until this many have the words in them."""
    while count:
        line = launcher.stdout.readline()
        assert line, launcher.communicate()
        count -= words in line


@pytest.mark.long
def test_signals_reach_every_host_and_a_host_that_is_cut_off_cleans_up(lab, ringleader):
    far, mark = lab.hosts[1], f"ringleader-lab-{os.getpid()}"
    key = ringleader(
        "lab", "exec", "--lab-name", lab.name, far.name, sys.executable, "-c", KEY
    ).stdout.strip()
    base = Path(f"/tmp/ringleader-{os.getuid()}")
    dead = base / "deadjob0123" / key  # what a job that was killed left on that host
    dead.mkdir(parents=True)
    (dead / "lock").touch()
    before = set(base.iterdir())
    words = (
        "run",
        "-H",
        f"{lab.hosts[0].name}:2,{far.name}:2",
        "--ssh-config",
        lab.ssh_config,
        "--grace",
        "2",
    )
    launcher = subprocess.Popen(
        (sys.executable, "-m", "ringleader", *words, sys.executable, "-c", TRAIN.replace("MARK", mark)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,  # in our session: SIGTSTP does not stop an orphaned process group
    )
    try:
        said(launcher, b"up", 4)
        assert not dead.exists(), "an agent of that host has removed it"
        launcher.send_signal(signal.SIGUSR1)
        said(launcher, b"heard", 4)
        launcher.send_signal(signal.SIGTSTP)
        until(lambda: [state for _, state in ranks(mark).values()] == ["T"] * 4)
        launcher.send_signal(signal.SIGCONT)
        until(lambda: "T" not in {state for _, state in ranks(mark).values()})

        parts = [job / key for job in set(base.iterdir()) - before if (job / key).is_dir()]
        assert len(parts) == 1, "the host's part of the job's directory"
        assert ringleader("lab", "cut", "--lab-name", lab.name, far.name).returncode == 0
        until(lambda: not parts[0].exists() and not {2, 3} & set(ranks(mark)))
        launcher.communicate(timeout=60)
        assert launcher.returncode != 0
        until(lambda: not parts[0].parent.exists())
    finally:
        launcher.kill()
        launcher.communicate()
        healed = ringleader("lab", "heal", "--lab-name", lab.name, far.name)
    assert healed.returncode == 0, healed.stderr
