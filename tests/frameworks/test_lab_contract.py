"""Every operation of every adapter between two hosts of a lab, compared with NumPy."""

import os
import sys
from pathlib import Path

import pytest
from tests.commands import finished
from tests.frameworks.conftest import PROGRAMS, quiet
from tests.time_limits import patience

from ringleader.lab.saved_state import Lab

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(400)]

RINGLEADER = [sys.executable, "-m", "ringleader"]


BRIDGES = ["tensorflow_eager", pytest.param("tensorflow_session", marks=pytest.mark.exhaustive), "jax"]
MXNET = Path(__file__).parents[2] / ".venv-mxnet"
with_mxnet = pytest.mark.skipif(not (MXNET / ".ready").exists(), reason="`make mxnet` has not been run")


@pytest.mark.parametrize("bridge", BRIDGES)
def test_operations_between_hosts_agree_with_numpy(lab: Lab, bridge: str) -> None:
    check(lab, sys.executable, "contract.py", bridge)


@with_mxnet
def test_operations_of_mxnet_between_hosts(lab: Lab) -> None:
    check(lab, str(MXNET / "bin" / "python"), "contract.py", "mxnet_ndarray")


@pytest.mark.exhaustive
@with_mxnet
def test_mxnet_trains_alike_on_hosts(lab: Lab) -> None:
    check(lab, str(MXNET / "bin" / "python"), "mxnet_training.py", "gluon")


@pytest.mark.exhaustive
@pytest.mark.parametrize("variable", ["KERAS_BACKEND=jax", "TF_USE_LEGACY_KERAS=1"])
def test_keras_trains_alike_on_hosts(lab: Lab, variable: str) -> None:
    check(lab, sys.executable, "keras_training.py", "200", variable=variable)


@pytest.mark.exhaustive
def test_tapes_train_alike_on_hosts(lab: Lab) -> None:
    check(lab, sys.executable, "tensorflow_training.py", "function")


def check(lab: Lab, python: str, program: str, *words: str, variable: str = "A=1") -> None:
    """Assert that a program's four ranks come to its end."""
    hosts = ",".join(f"{host.name}:2" for host in lab.hosts)
    command = ["env", variable, python, str(Path(PROGRAMS) / program), *words]
    result = finished(
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
        timeout=330,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-6000:]
    assert result.stdout.count("rank done") == 4
