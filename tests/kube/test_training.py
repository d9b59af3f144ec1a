"""Jobs that really train: each Pod is processes on a lab host, started as the operator's objects say."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interpreter import skip_where_mpirun_splits
from tests.kube.fake.store import Document
from tests.kube.training import images
from tests.kube.training.training_session import Stage, opened
from tests.kube.user_session import Command, until
from tests.labs import a_lab
from tests.mpijobs import mpijob

from ringleader.bench import run_file
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.recorded_job import JobRun

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.torch, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
OLD_MANIFEST = ROOT / "tests/golden/mpijob/tensorflow-benchmarks.old.yaml"
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
needs_openmpi4 = pytest.mark.skipif(
    shutil.which("mpirun.openmpi") is None, reason="Open MPI 4 is missing: apt-get install openmpi-bin"
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Four hosts with their own ssh port: three for workers, one for the launcher."""
    with (
        a_lab("k", "--bandwidth", "8gbit", hosts=4, slots=1, port=35) as lab,
        opened(lab, tmp_path_factory.mktemp("stage")) as found,
    ):
        yield found


def job(name: str, image: str, command: list[str], spawn: str = "ssh") -> dict[str, Any]:
    """An MPIJob of two workers with a slot each."""
    launcher = {"command": command, "env": [{"name": "OMP_NUM_THREADS", "value": "1"}]}
    policy = {"backoffLimit": 0, "cleanPodPolicy": "Running"}
    notes = {"annotations": {"ringleader/spawn": spawn}}
    found = mpijob(name, image=image, launcher=launcher, metadata=notes, slotsPerWorker=1, runPolicy=policy)
    found["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = "Never"
    return found


MPIRUN = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", "2", "-x", "OMP_NUM_THREADS"]
MNIST = shlex.quote(str(ROOT / "examples/mnist.py"))
TRAINING = f'echo "a rank on $(hostname)"; exec python {MNIST} --steps 12'


@pytest.mark.parametrize(
    ("mpi", "spawn"),
    [
        pytest.param("openmpi5", "ssh", marks=pytest.mark.long),
        pytest.param("openmpi5", "exec", marks=[needs_kubectl, pytest.mark.long]),
        pytest.param("openmpi4", "ssh", marks=[needs_openmpi4, pytest.mark.smoke]),
        pytest.param("openmpi4", "exec", marks=[needs_kubectl, needs_openmpi4, pytest.mark.long]),
    ],
)
def test_a_job_of_two_workers_trains(stage: Stage, mpi: str, spawn: str) -> None:
    image = {"openmpi5": images.OPENMPI5, "openmpi4": images.OPENMPI4}[mpi]
    if mpi == "openmpi5":
        skip_where_mpirun_splits(sys.prefix)
    name = f"{mpi}-{spawn}"
    with stage.job(name):
        out = stage.submit(job(name, image, [*MPIRUN, "sh", "-c", TRAINING], spawn))
        assert f"a rank on {name}-worker-0\n" in out
        assert f"a rank on {name}-worker-1\n" in out
        assert "2 rank(s)" in out
        assert "epoch 1: " in out and "test accuracy: " in out
        assert sorted(stage.run(name, verb="logs").splitlines()) == sorted(out.splitlines())
        assert stage.condition(name, "Succeeded")["status"] == "True"
        assert stage.condition(name, "Running")["status"] == "False"
        until("the last event", lambda: "MPIJobSucceeded" in stage.reasons(name))
        assert stage.reasons(name) == ["MPIJobCreated", "MPIJobRunning", "MPIJobSucceeded"]


def test_a_launch_that_stays_in_the_launcher_fails_the_job(stage: Stage) -> None:
    """Open MPI 5 that is not told of the hosts starts every rank where it is, and is content."""
    words = ["env", "-u", "PRTE_MCA_prte_default_hostfile", *MPIRUN, "--map-by", ":OVERSUBSCRIBE"]
    with stage.job("local"):
        out = stage.submit(job("local", images.OPENMPI5, [*words, "hostname"]), 3)
        assert out.splitlines().count("local-launcher") == 2
        failed = stage.condition("local", "Failed")
        assert failed["status"] == "True"
        assert "mpirun reached 0 of the 2 hosts that its 2 ranks need" in failed["message"]
        assert "local-worker-0.local.default.svc, local-worker-1.local.default.svc" in failed["message"]
        until("the last event", lambda: failed["reason"] in stage.reasons("local"))
        assert stage.reasons("local")[0] == "MPIJobCreated"


@needs_openmpi4
@pytest.mark.parametrize("layout", ["separate", "reference"])
def test_images_that_were_made_for_the_reference_controller_run(stage: Stage, layout: str) -> None:
    """Their user is not root, and their sshd has a port and its own configuration."""
    name = f"pi-{layout}"
    document = job(name, images.USERS, ["mpirun", "-n", "2", "hostname"])
    document["metadata"]["annotations"]["ringleader/ssh-layout"] = layout
    document["spec"]["sshAuthMountPath"] = f"{images.HOME}/.ssh"
    worker = document["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    worker["command"], worker["args"] = ["/usr/sbin/sshd"], ["-De", "-f", f"{images.HOME}/.sshd_config"]
    with stage.job(name):
        out = stage.submit(document)
        assert f"{name}-worker-0\n" in out and f"{name}-worker-1\n" in out


@needs_kubectl
@needs_openmpi4
def test_the_tensorflow_benchmarks_of_2019_run_once_they_are_converted(stage: Stage) -> None:
    """Nothing of the manifest is changed but by the conversion; its image is a stand-in."""
    name = "tensorflow-benchmarks"
    converted = stage.run("mpijob", "--convert", str(OLD_MANIFEST), verb="render")
    with stage.job(name):
        out = stage.submit(converted)
        assert f"hosts: {name}-worker-0 {name}-worker-1\n" in out
        assert "sum: 3 to 3\n" in out
        assert "arguments: --model=resnet101 --batch_size=64 --variable_update=horovod\n" in out
        assert stage.condition(name, "Succeeded")["status"] == "True"
        role = "training.kubeflow.org/job-role"
        # cleanPodPolicy: Running
        until(
            "workers are gone",
            lambda: [one["metadata"]["labels"][role] for one in stage.cluster.list("pods")] == ["launcher"],
        )


ELASTIC = """
import os, socket, time
import torch
import ringleader.torch as hvd
hvd.init()

@hvd.elastic.run
def train(state):
    hosts = sorted(name.removeprefix("elastic-") for name in hvd.allgather_object(socket.gethostname()))
    if hvd.rank() == 0:
        print(*hosts, "from", state.step, flush=True)
    is_over = False
    while not is_over:
        words = torch.tensor([1.0, float(os.path.exists("/etc/is-over"))])
        total = hvd.allreduce(words, op=hvd.Sum, name="sum")
        assert int(total[0]) == hvd.size(), total
        is_over = bool(total[1])
        state.step += 1
        state.commit()
        time.sleep(0.05)
    if hvd.rank() == 0:
        print("over at", state.step, flush=True)

train(hvd.elastic.TorchState(model=torch.nn.Linear(2, 2), step=0))
"""


EXCHANGE = """
import torch
import ringleader.torch as hvd
hvd.init()
for _ in range(4):
    hvd.allreduce(torch.ones(1 << 18), name="sum")
print("rank", hvd.rank(), "of", hvd.size(), flush=True)
"""


@pytest.mark.parametrize(
    ("on", "wire", "code"),
    [
        pytest.param("pods", "tcp", 0, marks=pytest.mark.long),
        pytest.param("kubernetes", "tcp", 0, marks=pytest.mark.long),
        pytest.param("pods", "rdma", 3, marks=pytest.mark.long),
    ],
)
def test_a_wire_is_proved_between_pods(stage: Stage, tmp_path: Path, on: str, wire: str, code: int) -> None:
    """The record, the outcome and its proof come back with the log, which shows nothing of them.

    Before that each Pod checks its node, and the launcher checks and measures the workers.
    """
    name, report, outcome = f"{wire}-{on}", tmp_path / "report", tmp_path / "outcome.json"
    words = ("--on", on, "--image", images.OPENMPI5, "--job-name", name, "-n", "2", "--require", wire)
    words += ("--launch-with", "ringleader", "--report", str(report), "--json-file", str(outcome))
    words += ("--check", "active" if on == "pods" else "quick")  # in each Pod, then between them
    with stage.job(name):
        out = stage.run(*words, "--", "python", "-c", EXCHANGE, codes=(code,))
        assert "ringleader-file" not in out
        found = json.loads(outcome.read_text())
        if code:
            assert f"{name}-worker-0.{name}.default.svc: rdma is required, and it has no RDMA" in out
            assert found["outcome"]["exit_code"] == code
            return
        assert "[1] rank 1 of 2" in out and "TCP on " in out
        assert len(found["outcome"]["proof"]["hosts"]) == 2
        record = run_file.read_any(report)
        assert isinstance(record, JobRun) and record.ended is not None and record.ended.proof is not None


@pytest.mark.long
@pytest.mark.parametrize("on", ["pods", "kubernetes"])
def test_links_and_sizes_are_measured_between_pods(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    """Commands of Ringleader run once, in the launcher, and what they measure is kept here."""
    monkeypatch.chdir(tmp_path)
    name = f"bench-{on}"
    words = ("--on", on, "--image", images.OPENMPI5, "--job-name", name, "-n", "2", "--", "ringleader")
    with stage.job(name):
        stage.run(*words, "bench", "p2p", "-b", "1M", "-e", "1M", "--seconds", "1", "--name", "links")
        run = run_file.read_any(tmp_path / "runs" / "links")
        assert isinstance(run, PointToPointRun) and run.transfers
        assert [place.host for place in run.places] == [
            f"{name}-worker-{n}.{name}.default.svc" for n in (0, 1)
        ]
        stage.delete(name)
        # This machine may not be a good host.
        out = stage.run(*words, "doctor", "--active", "--active-seconds", "3", "-v", codes=(0, 3))
        assert re.search(r"PASS +active\.(answer|rate|latency)", out), out


STEPS = """
import time
import ringleader
import torch
import ringleader.torch as hvd
hvd.init()
for _ in range(150):
    hvd.allreduce(torch.ones(1 << 12), name="sum")
    ringleader.progress(samples=8)
    time.sleep(0.02)
"""


@pytest.mark.long
def test_all_sizes_are_measured_in_one_job(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that exchange something, that only synchronize, and that are independent; and the wire."""
    monkeypatch.chdir(tmp_path)
    words = ("--on", "pods", "--image", images.OPENMPI5, "--launch-with", "ringleader", "--name", "r")
    words += ("-o", "kept", "--grid", "1x1,2x1", "--repeats", "1", "--require", "tcp", "--no-page")
    with stage.job("python"):
        stage.run(*words, "--", "python", "-c", STEPS, verb="scale")
        run = run_file.read(tmp_path / "kept" / "r")
        assert [point.size.ranks for point in run.points] == [1, 2]
        assert all(samples for _, samples in run.points[1].kinds), "coupled, independent and barrier-only"
        assert run.points[1].transport is not None


@needs_kubectl
@pytest.mark.long
def test_an_elastic_job_goes_on_while_its_workers_come_and_go(stage: Stage) -> None:
    """Scaled up and down, a worker deleted with notice, one killed: its launcher's Pod stays what it was."""
    name = "elastic"
    words = ("--on", "kubernetes", "--image", images.OPENMPI5, "--job-name", name, "-n", "2")
    words += ("--min-np", "1", "--max-np", "3", "--", "python", "-c", ELASTIC)
    user = Command(("run", *words), kubeconfig=stage.kubeconfig)
    last_line = last_step = 0

    def trains_on(*workers: int) -> None:
        """Wait until these workers train, from no earlier step: the same where those before made none."""
        nonlocal last_line, last_step
        text = " ".join(f"worker-{index}" for index in workers)

        def found() -> tuple[int, int] | None:
            assert user.process.poll() is None, "the job has ended"
            lines = enumerate(user.out.splitlines(), 1)
            matches = ((at, re.fullmatch(rf"{text} from (\d+)", line)) for at, line in lines)
            return next(((at, int(match[1])) for at, match in matches if match and at > last_line), None)

        last_line, step = until(text, found)
        assert step >= last_step
        last_step = step

    def launcher() -> tuple[str, str]:
        (pod,) = (one for one in stage.cluster.list("pods") if "-launcher-" in one["metadata"]["name"])
        return pod["metadata"]["uid"], pod["status"]["phase"]

    def size() -> Document:
        return (stage.cluster.get("mpijobs", name) or {})["status"]["elastic"]

    def kubectl(*argv: str) -> str:
        command = ("kubectl", "--kubeconfig", str(stage.kubeconfig), *argv)
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    try:
        trains_on(0, 1)
        before = launcher()
        kubectl("scale", "mpijob", name, "--replicas=3")
        trains_on(0, 1, 2)
        kubectl("scale", "mpijob", name, "--replicas=2")
        trains_on(0, 1)
        until("two workers", lambda: (size()["workers"], size()["lastChange"]) == (2, "scaled to 2"))
        user.says("running on 2 of 2 workers: scaled to 2 (change 2)\n")  # before the next change
        kubectl("delete", "pod", f"{name}-worker-1", "--wait=false")  # it has time, as one that is evicted
        trains_on(0)
        trains_on(0, 1)
        stage.nodes.kill(f"{name}-worker-1")
        trains_on(0)
        trains_on(0, 1)
        until("two workers", lambda: size()["workers"] == 2)
        assert launcher() == before, "the launcher's Pod was there all the time"
        assert size()["changes"] == 6 and size()["lastChange"] == "1 more worker runs"
        until("six events", lambda: stage.reasons(name).count("MPIJobResized") == 6)
        assert "MPIJobRestarting" not in stage.reasons(name)
        (stage.folder / "etc" / "is-over").touch()
        until("the end", lambda: user.process.poll() is not None)
        assert user.ends() == 0
        over = re.search(r"over at (\d+)\n", user.out)
        assert over and int(over[1]) > last_step > 0
    except AssertionError as error:
        raise AssertionError(f"{error}\n{user}\n{stage.story()}") from error
    finally:
        (stage.folder / "etc" / "is-over").unlink(missing_ok=True)
        user.kill()
        stage.delete(name)
