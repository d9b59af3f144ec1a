"""A lab for a module or session of tests: own name, subnet and ssh port, never those of a developer's lab."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ringleader.errors import RefusedError
from ringleader.lab import requirements, saved_state
from ringleader.lab.saved_state import Lab


def skip_without_lab() -> None:
    """Skip, with the reason, where this machine can't have a lab."""
    try:
        requirements.check_machine(os.environ)
    except RefusedError as error:
        pytest.skip(str(error))


def unique_name(letter: str) -> str:
    """Return a lab name that no other test process on this machine uses."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    number, text = os.getpid(), ""
    while number:
        number, digit = divmod(number, 36)
        text = digits[digit] + text
    return f"{letter}{text}"[:8]


@contextmanager
def a_lab(letter: str, *words: str, hosts: int, port: int, slots: int = 2) -> Iterator[Lab]:
    """A lab with options of ``lab up``, which is removed at the end; skips where there can be none."""
    skip_without_lab()
    name = unique_name(letter)
    size = ("--hosts", str(hosts), "--slots", str(slots), "--ssh-port", str(port))
    try:
        _lab("up", "--lab-name", name, *size, *words)
        yield saved_state.load(name)
    finally:
        _lab("down", "--lab-name", name)
    assert name not in saved_state.names()


def _lab(*words: str) -> None:
    command = [sys.executable, "-m", "ringleader", "lab", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
