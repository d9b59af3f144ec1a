"""Jobs that really train: each Pod is processes on a lab host, started as the operator's objects say."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kube.training import images
from tests.kube.training.stage import Stage, opened, until

from ringleader.errors import RefusedError
from ringleader.lab import needs, state

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.torch]

ROOT = Path(__file__).resolve().parents[2]
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
needs_openmpi4 = pytest.mark.skipif(
    shutil.which("mpirun.openmpi") is None, reason="Open MPI 4 is missing: apt-get install openmpi-bin"
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Three hosts with an ssh port of their own: two for workers, one for the launcher."""
    try:
        needs.check_machine(os.environ)
    except RefusedError as error:
        pytest.skip(str(error))
    name = f"k{os.getpid() % 10**6}"
    try:
        words = ("--hosts", "3", "--slots", "1", "--bandwidth", "8gbit", "--ssh-port", "35")
        done = Stage.ringleader("lab", "up", "--name", name, *words)
        assert done.returncode == 0, done.stderr
        with opened(state.load(name), tmp_path_factory.mktemp("stage")) as found:
            yield found
    finally:
        done = Stage.ringleader("lab", "down", "--name", name)
        assert done.returncode == 0, done.stderr


def job(name: str, image: str, command: list[str], spawn: str = "ssh") -> dict[str, Any]:
    """An MPIJob of two workers with a slot each."""
    container = {"name": "main", "image": image}
    launcher = {**container, "command": command, "env": [{"name": "OMP_NUM_THREADS", "value": "1"}]}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "annotations": {"ringleader/spawn": spawn}},
        "spec": {
            "slotsPerWorker": 1,
            "runPolicy": {"backoffLimit": 0, "cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": {"restartPolicy": "Never", "template": {"spec": {"containers": [launcher]}}},
                "Worker": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
            },
        },
    }


MPIRUN = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", "2", "-x", "OMP_NUM_THREADS"]
TRAINING = f'echo "a rank on $(hostname)"; exec python {ROOT}/examples/mnist.py --epochs 1'


@pytest.mark.parametrize("spawn", ["ssh", pytest.param("exec", marks=needs_kubectl)])
@pytest.mark.parametrize("mpi", ["openmpi5", pytest.param("openmpi4", marks=needs_openmpi4)])
def test_a_job_of_two_workers_trains(stage: Stage, mpi: str, spawn: str) -> None:
    image = {"openmpi5": images.OPENMPI5, "openmpi4": images.OPENMPI4}[mpi]
    name = f"{mpi}-{spawn}"
    try:
        ended = stage.submit(job(name, image, [*MPIRUN, "sh", "-c", TRAINING], spawn))
        assert ended.code == 0, f"{ended}\n{stage.story()}"
        assert f"a rank on {name}-worker-0\n" in ended.out
        assert f"a rank on {name}-worker-1\n" in ended.out
        assert "2 rank(s)" in ended.out
        assert "epoch 1: " in ended.out and "test accuracy: " in ended.out
        assert sorted(stage.logs(name).splitlines()) == sorted(ended.out.splitlines())
        assert stage.condition(name, "Succeeded")["status"] == "True"
        assert stage.condition(name, "Running")["status"] == "False"
        until("the last event", lambda: "MPIJobSucceeded" in stage.reasons(name))
        assert stage.reasons(name) == ["MPIJobCreated", "MPIJobRunning", "MPIJobSucceeded"]
    finally:
        stage.delete(name)
