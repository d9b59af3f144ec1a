"""Commands that are killed: what they started ends with them, what they made goes, now or at the next."""

import signal

import pytest
from tests.time_limits import until

PIP = """
import os, pathlib, subprocess, sys, tempfile, time
tempfile.mkdtemp()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)  # pip-child"], start_new_session=True)
pathlib.Path(os.environ["READY"]).touch()
time.sleep(300)  # fake-pip
"""


@pytest.fixture
def lock(workplace):
    """Return a function that starts ``image lock`` with a pip that has a child, and waits until it has."""
    (workplace.tmp / "pip").mkdir()
    (workplace.tmp / "pip/__init__.py").touch()
    (workplace.tmp / "pip/__main__.py").write_text(PIP)
    ready = workplace.tmp / "ready"
    workplace.environ |= {"PYTHONPATH": str(workplace.tmp), "READY": str(ready)}

    def start():
        ready.unlink(missing_ok=True)
        command = workplace.ringleader("image", "lock", "pytorch-cpu", "--no-check")
        until(lambda: ready.exists() or command.poll() is not None)
        assert command.poll() is None, command.communicate()
        return command

    return start


def made(workplace):
    """Return everything in the directory for temporary files that did not exist before."""
    return sorted(
        path.relative_to(workplace.tmp)
        for path in workplace.tmp.iterdir()
        if path.name not in ("pip", "ready") and any(path.iterdir())
    )


def test_a_lock_that_is_ended_ends_pip_and_removes_its_directories(lock, workplace):
    command = lock()
    assert made(workplace)
    command.send_signal(signal.SIGHUP)
    _, err = command.communicate(timeout=30)
    assert (command.returncode, err.strip()) == (128 + signal.SIGHUP, b"ringleader: stopped by SIGHUP")
    assert not workplace.gone_within(5.0)
    assert not made(workplace)


def test_a_lock_that_is_killed_takes_pip_with_it_and_the_next_command_removes_the_rest(lock, workplace):
    command = lock()
    other = lock()
    command.kill()
    command.communicate(timeout=30)
    until(lambda: sum("pip-child" in words for words in workplace.processes().values()) == 1)
    assert len(made(workplace)) == 1 and len(workplace.job_directories()) == 2
    workplace.environ.pop("PYTHONPATH")
    done = workplace.run("run", "-n", "1", "true")
    assert done.returncode == 0, done.stderr
    assert len(workplace.job_directories()) == 1, "that of the one that still runs"
    other.terminate()
    other.communicate(timeout=30)
    assert not workplace.gone_within(5.0) and not made(workplace)
