"""Every operation of every adapter between two hosts of a lab, compared with NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.frameworks.conftest import PROGRAMS, quiet

from ringleader.errors import RefusedError
from ringleader.lab import requirements, saved_state

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(400)]

RINGLEADER = [sys.executable, "-m", "ringleader"]


@pytest.fixture(scope="module")
def lab() -> Iterator[saved_state.Lab]:
    """Two hosts with two slots each."""
    try:
        requirements.check_machine(os.environ)
    except RefusedError as error:
        pytest.skip(str(error))
    name = f"f{os.getpid()}"[:8]
    words = ("--hosts", "2", "--slots", "2", "--ssh-port", "35")
    try:
        subprocess.run([*RINGLEADER, "lab", "up", "--name", name, *words], check=True, timeout=120)
        yield saved_state.load(name)
    finally:
        subprocess.run([*RINGLEADER, "lab", "down", "--name", name], check=True, timeout=120)


@pytest.mark.parametrize("bridge", ["tensorflow_eager", "tensorflow_function", "tensorflow_session", "jax"])
def test_operations_between_hosts_agree_with_numpy(lab: saved_state.Lab, bridge: str) -> None:
    hosts = ",".join(f"{host.name}:2" for host in lab.hosts)
    program = [sys.executable, str(Path(PROGRAMS) / "contract.py"), bridge]
    result = subprocess.run(
        [*RINGLEADER, "run", "--ssh-config", lab.ssh_config, "-H", hosts, "--timeout", "300", "--", *program],
        env=quiet(os.environ),
        capture_output=True,
        text=True,
        timeout=330,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-6000:]
    assert result.stdout.count("rank done") == 4
