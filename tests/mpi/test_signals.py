"""Signals to the launcher that do not end the job: they reach the ranks, or stop and continue all of it."""

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.time_limits import until

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


def test_signals_before_ranks_run_and_after_a_callers_own_handler(workplace, python):
    """SIGUSR1 during the start does not end the launcher; a handler of the caller's is called as well."""
    program = f"""
import os, signal, threading, time, ringleader.api
heard = []
signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
def train():
    import signal, time
    got = []
    signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))
    print("up", flush=True)
    while not got:
        time.sleep(0.01)
    return len(got)
def tell():
    while not os.path.exists("{workplace.tmp}/up"):
        os.kill(os.getpid(), signal.SIGUSR1) if not heard else None
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGUSR1)
class Listener(ringleader.api.Printer):
    def output(self, rank, stream, line):
        if line == b"up\\n":
            open("{workplace.tmp}/up", "w").close()
threading.Thread(target=tell, daemon=True).start()
while not heard: time.sleep(0.01)
assert ringleader.run(train, np=1, listener=Listener(size=1)) == [1]
assert len(heard) == 2, heard
"""
    done = subprocess.run(
        (python, "-c", program), env=workplace.environ, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
