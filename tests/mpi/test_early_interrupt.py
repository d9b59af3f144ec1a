"""Ctrl-C at any moment of the start: a quiet end, whatever is being imported or looked for."""

import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.mpi

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
