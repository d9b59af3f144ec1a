"""What ranks are given between SIGTERM and SIGKILL: enough for a checkpoint, and no more than asked for."""

import os
import shlex
import signal
import time

import pytest

from ringleader.launch.supervision import mpirun_session

pytestmark = pytest.mark.mpi

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
