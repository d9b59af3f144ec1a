"""Every operation of every adapter between two hosts of a lab, compared with NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.frameworks.conftest import PROGRAMS, quiet
from tests.time_limits import patience

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
        subprocess.run([*RINGLEADER, "lab", "up", "--lab-name", name, *words], check=True, timeout=120)
        yield saved_state.load(name)
    finally:
        subprocess.run([*RINGLEADER, "lab", "down", "--lab-name", name], check=True, timeout=120)


BRIDGES = ["tensorflow_eager", pytest.param("tensorflow_session", marks=pytest.mark.exhaustive), "jax"]
MXNET = Path(__file__).parents[2] / ".venv-mxnet"
with_mxnet = pytest.mark.skipif(not (MXNET / ".ready").exists(), reason="`make mxnet` has not been run")


@pytest.mark.parametrize("bridge", BRIDGES)
def test_operations_between_hosts_agree_with_numpy(lab: saved_state.Lab, bridge: str) -> None:
    check(lab, sys.executable, "contract.py", bridge)


@with_mxnet
def test_operations_of_mxnet_between_hosts(lab: saved_state.Lab) -> None:
    check(lab, str(MXNET / "bin" / "python"), "contract.py", "mxnet_ndarray")


@pytest.mark.exhaustive
@with_mxnet
def test_mxnet_trains_alike_on_hosts(lab: saved_state.Lab) -> None:
    check(lab, str(MXNET / "bin" / "python"), "mxnet_training.py", "gluon")


@pytest.mark.exhaustive
@pytest.mark.parametrize("variable", ["KERAS_BACKEND=jax", "TF_USE_LEGACY_KERAS=1"])
def test_keras_trains_alike_on_hosts(lab: saved_state.Lab, variable: str) -> None:
    check(lab, sys.executable, "keras_training.py", "200", variable=variable)


@pytest.mark.exhaustive
def test_tapes_train_alike_on_hosts(lab: saved_state.Lab) -> None:
    check(lab, sys.executable, "tensorflow_training.py", "function")


def check(lab: saved_state.Lab, python: str, program: str, *words: str, variable: str = "A=1") -> None:
    """Assert that a program's four ranks come to its end."""
    hosts = ",".join(f"{host.name}:2" for host in lab.hosts)
    command = ["env", variable, python, str(Path(PROGRAMS) / program), *words]
    result = subprocess.run(
        [
            *RINGLEADER,
            "run",
            "--ssh-config",
            lab.ssh_config,
            "-H",
            hosts,
            "--timeout",
            str(patience(300)),
            "--",
            *command,
        ],
        env=quiet(os.environ),
        capture_output=True,
        text=True,
        timeout=330,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-6000:]
    assert result.stdout.count("rank done") == 4
