"""Signals to the launcher: they reach the ranks, stop and continue all of it, or end it with their grace."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.time_limits import until

from ringleader.launch.supervision import mpirun_session

pytestmark = pytest.mark.mpi

TRAIN = """
import multiprocessing, os, signal, sys, time
heard = []
def note(number, frame):
    print("heard", signal.Signals(number).name, flush=True)
    heard.append(number)
helper = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(120,), daemon=True)
if __name__ == "__main__":
    helper.start()
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, note)
    print("up", flush=True)
    while signal.SIGUSR2 not in heard:
        time.sleep(0.01)
    assert helper.is_alive()
"""


def state(pid):
    """The letter by which the kernel says what a process does: S sleeps, R runs, T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def said(launcher, words, count):
    """Read lines until this many have the words in them."""
    while count:
        line = launcher.stdout.readline()
        assert line, launcher.communicate()
        count -= words in line


def test_forwarded_stopped_and_continued(workplace, python):
    """SIGUSR1 reaches a script below a shell, no worker of it; Ctrl-Z and fg; SIGSTOP of the launcher."""
    (workplace.tmp / "train.py").write_text(TRAIN)
    command = ("sh", "-c", f"{shlex.quote(python)} train.py; exit $?")
    # In our session, so that its process group is not an orphaned one, which SIGTSTP would not stop.
    words = ("-n", "2", "--oversubscribe", "--mpi", "embedded", "--workdir", str(workplace.tmp))
    launcher = workplace.ringleader("run", *words, *command, start_new_session=False, process_group=0)
    said(launcher, b"up", 2)
    launcher.send_signal(signal.SIGUSR1)
    said(launcher, b"heard SIGUSR1", 2)

    ranks = [pid for pid in workplace.wait_for("train.py", 4) if "agent.py" not in workplace.processes()[pid]]
    helpers = workplace.wait_for("spawn_main", 2)
    launcher.send_signal(signal.SIGTSTP)
    until(lambda: state(launcher.pid) == "T")
    until(lambda: all(state(pid) == "T" for pid in (*ranks, *helpers)))
    launcher.send_signal(signal.SIGCONT)
    until(lambda: not any(state(pid) == "T" for pid in (launcher.pid, *ranks, *helpers)))

    launcher.send_signal(signal.SIGSTOP)  # nobody can catch that: the ranks continue
    until(lambda: state(launcher.pid) == "T")
    time.sleep(0.3)
    assert not any(state(pid) == "T" for pid in (*ranks, *helpers))
    launcher.send_signal(signal.SIGCONT)

    launcher.send_signal(signal.SIGUSR2)
    out, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 0, err
    assert out.count(b"heard SIGUSR2") == 2


def test_without_a_handler_a_forwarded_signal_does_what_it_always_does(workplace):
    launcher = workplace.ringleader("run", "-n", "1", "sh", "-c", "echo up; sleep 120; exit $?")
    said(launcher, b"up", 1)
    launcher.send_signal(signal.SIGUSR1)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + signal.SIGUSR1, err
    assert b"SIGUSR1" in err


def test_a_stopped_job_can_be_killed_and_its_time_does_not_run(workplace, python):
    program = "import time; print('up', flush=True); time.sleep(120)  # ringleader-test-rank"
    words = ("run", "-n", "1", "--timeout", "4", python, "-c", program)
    launcher = workplace.ringleader(*words, start_new_session=False, process_group=0)
    said(launcher, b"up", 1)
    [rank] = [pid for pid in workplace.wait_for("ringleader-test-rank", 1) if os.getpgid(pid) == pid]
    launcher.send_signal(signal.SIGTSTP)
    until(lambda: state(rank) == "T" and state(launcher.pid) == "T")
    time.sleep(4.5)
    launcher.send_signal(signal.SIGCONT)
    until(lambda: state(rank) != "T")
    time.sleep(1)
    assert launcher.poll() is None, launcher.communicate()
    launcher.send_signal(signal.SIGTSTP)
    until(lambda: state(rank) == "T" and state(launcher.pid) == "T")
    launcher.kill()
    launcher.communicate(timeout=60)
    assert not workplace.gone_within(5.0)
    workplace.run("run", "-n", "1", "true")


# --- the grace between SIGTERM and SIGKILL ----------------------------------------------------------------

CHECKPOINT = """
import os, signal, sys, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
def save(number, frame):
    time.sleep(5)
    open(f"saved{os.environ['RANK']}", "w").write("all of it")
    os._exit(0)
if os.environ["RANK"] in os.environ["SAVERS"].split(","):
    signal.signal(signal.SIGTERM, save)
print("up", flush=True)
end = time.monotonic() + 120
while time.monotonic() < end:
    time.sleep(0.1)
    if os.environ["RANK"] == "1" and os.path.exists("fail"):
        os.kill(os.getpid(), signal.SIGSEGV)
"""


def start(workplace, python, *words, savers="0", mpi="embedded"):
    """Start two ranks of which some need 5 s after SIGTERM."""
    (workplace.tmp / "train.py").write_text(CHECKPOINT)
    command = ("run", "-n", "2", "--oversubscribe", "--mpi", mpi, "--workdir", str(workplace.tmp))
    launcher = workplace.ringleader(*command, "-x", f"SAVERS={savers}", *words, python, "train.py")
    for _ in range(2):
        assert b"up" in launcher.stdout.readline(), launcher.communicate()
    return launcher


@pytest.mark.parametrize(("ended", "code"), [("a rank fails", 139), ("SIGTERM", 143)])
def test_a_checkpoint_that_takes_five_seconds_is_saved(some_mpi, workplace, python, ended, code):
    """The other rank ends at once: an MPI that then ends its processes does not cut the grace short."""
    launcher = start(workplace, python, mpi=some_mpi)
    if ended == "SIGTERM":
        launcher.send_signal(signal.SIGTERM)
    else:
        (workplace.tmp / "fail").touch()
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == code, err
    assert (workplace.tmp / "saved0").exists(), err
    assert b"waiting for rank 0 (localhost) to end" in err


def test_a_short_grace_ends_in_sigkill(workplace, python):
    launcher = start(workplace, python, "--grace", "1", savers="0,1")
    began = time.monotonic()
    launcher.send_signal(signal.SIGTERM)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 143, err
    assert not (workplace.tmp / "saved0").exists() and not (workplace.tmp / "saved1").exists()
    assert time.monotonic() - began < 1 + mpirun_session.LOST_SECONDS
    assert not workplace.gone_within(1.0)


def test_a_child_that_saves_after_its_shell_has_ended_is_waited_for(workplace, python):
    (workplace.tmp / "train.py").write_text(CHECKPOINT.replace('os.environ["SAVERS"]', '"0,1"'))
    shell = ("sh", "-c", f"{shlex.quote(python)} train.py; true")
    command = ("run", "-n", "1", "--workdir", str(workplace.tmp), *shell)
    launcher = workplace.ringleader(*command)
    assert b"up" in launcher.stdout.readline()
    launcher.send_signal(signal.SIGTERM)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 143, err
    assert (workplace.tmp / "saved0").exists(), err


def test_sigterm_to_every_process_of_the_job_leaves_ranks_their_grace(workplace, python):
    """As systemd and Slurm do it."""
    launcher = start(workplace, python, savers="0,1")
    for pid in workplace.processes():
        os.kill(pid, signal.SIGTERM)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 143, err
    assert (workplace.tmp / "saved0").exists() and (workplace.tmp / "saved1").exists(), err


def test_second_interrupt_does_not_wait(workplace, python):
    launcher = start(workplace, python, savers="0,1")
    launcher.send_signal(signal.SIGINT)
    err = b""
    while b"waiting for rank 0 (localhost), rank 1 (localhost) to end" not in err:
        err += launcher.stderr.readline()
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=60)
    assert launcher.returncode == 130
    assert not (workplace.tmp / "saved0").exists()


@pytest.mark.parametrize("stopped", [pytest.param("supervisor", marks=pytest.mark.long), "mpirun"])
def test_a_helper_that_is_stopped_does_not_keep_the_launcher(stopped, workplace, python):
    launcher = start(workplace, python, savers="")
    pid = workplace.wait_for("mpirun_supervisor", 1)[0] if stopped == "supervisor" else workplace.mpirun()
    os.kill(pid, signal.SIGSTOP)
    launcher.send_signal(signal.SIGTERM)
    _, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 143, err
    assert not workplace.gone_within(5.0)


# --- Ctrl-C at any moment of the start --------------------------------------------------------------------

FIRST = """
import _signal, sys, types
import ringleader.__main__ as ours

def signal(number, action):
    _signal.signal(number, action)
    print("!", file=sys.stderr, flush=True)

ours.signal = types.SimpleNamespace(**(vars(_signal) | {"signal": signal}))
ours.main()
"""
"""What ``python -m ringleader`` does. It reports that our first line has run; the rest is Python's."""
DELAYS = (1, 3, 6, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100, 120, 150, 180, 220, 300)
"""In milliseconds."""


@pytest.mark.parametrize("words", [("run", "-n", "1", "sleep", "60"), ("lab", "status")], ids=["run", "lab"])
def test_an_early_interrupt_ends_quietly(words, workplace):
    for delay in DELAYS:
        command = subprocess.Popen(
            (sys.executable, "-c", FIRST, *words),
            env=workplace.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        workplace.started.append(command)
        assert command.stderr.readline() == b"!\n"
        time.sleep(delay / 1000)
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=60)
        assert command.returncode in (0, 3, 130, -signal.SIGINT), (delay, command.returncode, said)
        assert b"Traceback" not in said and b"Exception ignored" not in said, (delay, said.decode())
    assert not workplace.gone_within(5.0)
