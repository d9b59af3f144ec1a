"""The agent's outer process where its inner one can do nothing any more, or nothing yet."""

import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.time_limits import patience

from ringleader.agents import job_directory, protocol, rank_agent, rank_agent_guard, rank_agent_loop
from ringleader.launch.supervision.agent_connections import AgentServer

pytestmark = pytest.mark.process

TOKEN = "secret"


def said(selector, control, what):
    """Serve until an agent says so."""
    until = time.monotonic() + patience(60.0)
    while time.monotonic() < until:
        for key, mask in selector.select(0.05):
            if key.data == control.accept:
                control.accept()
                continue
            for kind, payload in control.serve(key.data, mask):
                words = protocol.read_message(payload) if kind == protocol.MESSAGE else {}
                if words.get("do") == what:
                    return words
    raise AssertionError(f"no agent said {what}")


def test_a_killed_inner_process_leaves_nothing_on_its_host(tmp_path):
    selector = selectors.PollSelector()
    control = AgentServer(selector, token=TOKEN, addresses=("127.0.0.1",), ranks=1)
    job = tmp_path / "ringleader-1" / f"guard-{os.getpid()}"
    shared = Path(job_directory.backing_directory(job.name))
    environ = {
        "OMPI_COMM_WORLD_RANK": "0",
        "RINGLEADER_CONTROL": f"127.0.0.1:{control.port}",
        "RINGLEADER_TOKEN": TOKEN,
        "RINGLEADER_JOB_DIR": str(job),
    }
    outer = subprocess.Popen((sys.executable, "-I", "-S", rank_agent.__file__), env=environ)
    try:
        inner = said(selector, control, "hello")["pid"]
        assert isinstance(inner, int) and job.is_dir() and shared.is_dir()
        os.kill(inner, signal.SIGKILL)
        assert said(selector, control, "agent_killed")["signal"] == signal.SIGKILL
        assert outer.wait(60.0) == 1
    except subprocess.TimeoutExpired:
        pytest.fail("the outer process did not end")
    finally:
        outer.kill()
        outer.wait()
    assert not job.parent.exists() and not shared.exists()


@pytest.mark.parametrize(("by_the_mpi", "heeded"), [(True, []), (False, [signal.SIGTERM])])
def test_a_signal_that_came_before_the_handlers_is_judged_by_its_sender(by_the_mpi, heeded):
    came = list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, rank_agent_guard.AWAITED)
    try:
        signal.raise_signal(signal.SIGTERM)  # to this thread, whatever others there are
        rank_agent_loop._take_early_signals(os.getpid() if by_the_mpi else 1)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, rank_agent_guard.AWAITED)
        signal.signal(signal.SIGTERM, before)
    assert came == heeded
