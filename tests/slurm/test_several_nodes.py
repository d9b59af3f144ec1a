"""A real Slurm whose nodes are four hosts of a lab: trainings that lose a node, sizes, doctor and bench."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.conftest import Workplace
from tests.slurm.cluster import LabCluster
from tests.slurm.test_real_training import steps_in, wait_for_log
from tests.time_limits import patience

pytestmark = [pytest.mark.process, pytest.mark.lab, pytest.mark.mpi, pytest.mark.torch, pytest.mark.long]
HERE = Path(__file__).parent


@pytest.fixture
def user(lab_slurm: LabCluster, workplace: Workplace) -> Workplace:
    """Somebody on the machine from which jobs are sent to the hosts."""
    for name in [name for name in workplace.environ if name.startswith("SLURM_")]:
        del workplace.environ[name]
    own = {"PATH": workplace.environ["PATH"], "OMPI_MCA_mpi_yield_when_idle": "1"}
    own["TMPDIR"] = "/var/tmp"  # each host's own, which ends with it
    workplace.environ |= lab_slurm.environ | own
    return workplace


def options(cluster: LabCluster, nodes: int, *words: str) -> list[str]:
    return [
        "--on",
        "slurm",
        "--nodes",
        str(nodes),
        "--time",
        "10",
        "--ssh-config",
        cluster.lab.ssh_config,
        *words,
    ]


class Training:
    """A training that is sent to Slurm, and followed."""

    def __init__(self, cluster: LabCluster, user: Workplace, place: Path, kind: str, steps: int) -> None:
        place.mkdir()
        self.cluster, self.place, self.kind = cluster, place, kind
        self.words = ["--requeue", "--grace", "5", "--lost-after", "5"]
        if kind == "elastic":
            self.words += ["--min-np", "3", "--checkpoint-dir", str(place / "commits")]
            program = [str(HERE / "elastic_training.py"), str(steps)]
        else:
            program = [str(HERE / "checkpoint_training.py"), str(steps), str(place / "file")]
        self.command = ["--", sys.executable, *program]
        self.user = user

    def begin(self, *words: str) -> None:
        asked = options(self.cluster, 3, *self.words, *words)
        self.following = self.user.ringleader("run", *asked, *self.command, cwd=self.place)
        self.log = wait_for_log(self.place)
        self.number = self.log.stem.removeprefix("slurm-")

    def steps(self) -> list[tuple[int, float, str]]:
        return steps_in(self.log.read_text())

    def until(self, step: int, restart: str) -> None:
        end = time.monotonic() + patience(120.0)
        while not any(one[0] >= step and one[2] == restart for one in self.steps()):
            assert time.monotonic() < end, self.log.read_text()
            assert self.following.poll() is None, self.following.communicate()
            time.sleep(0.1)

    def finish(self) -> str:
        out, err = self.following.communicate(timeout=patience(400.0))
        assert self.following.returncode == 0, (out.decode(), err.decode())
        assert steps_in(out.decode()) == self.steps()  # whoever followed has seen all of it
        return err.decode()

    def losses(self) -> dict[int, float]:
        """Each step's loss; one that was made twice had it twice."""
        found = dict[int, float]()
        for step, loss, _ in self.steps():
            assert abs(found.setdefault(step, loss) - loss) < 1e-5, (step, loss)
        return found


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, dict[int, float]]:
    """Kind of training → losses of a run that nothing happened to."""
    return {}


STEPS = 40


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "which"), [("checkpoint", -1), ("checkpoint", 0), ("elastic", -1), ("elastic", 0)]
)
def test_a_training_on_three_nodes_loses_one_and_ends_with_the_same_losses(
    lab_slurm: LabCluster,
    user: Workplace,
    tmp_path: Path,
    undisturbed: dict[str, dict[int, float]],
    kind: str,
    which: int,
) -> None:
    """``which``: the node that is ended. The first one has the script and the launcher."""
    if kind not in undisturbed:
        calm = Training(lab_slurm, user, tmp_path / "calm", kind, STEPS)
        calm.begin()
        told = calm.finish()
        undisturbed[kind] = calm.losses()
        assert list(undisturbed[kind]) == list(range(1, STEPS + 1))
        assert re.search(r"running on 3 nodes: \S+", told)
    training = Training(lab_slurm, user, tmp_path / "lost", kind, STEPS)
    training.begin()
    training.until(12, "0")
    node = lab_slurm.nodes_of(training.number)[which]
    lab_slurm.stop_node(node)
    try:
        told = training.finish()
    finally:
        lab_slurm.revive_node(node)
    assert lab_slurm.job(training.number)["Restarts"] == "1"
    assert node not in lab_slurm.nodes_of(training.number)
    assert f"{training.number}: running (restart 1) on 3 nodes: " in told
    found, wanted = training.losses(), undisturbed[kind]
    assert found.keys() == wanted.keys()
    assert all(abs(found[step] - wanted[step]) < 1e-5 for step in wanted)
    again = [step for step, _, restart in training.steps() if restart == "1"]
    assert again[0] > 1  # it has not begun anew


@pytest.mark.timeout(900)
def test_an_elastic_training_on_three_nodes_continues_after_its_time_limit(
    lab_slurm: LabCluster, user: Workplace, tmp_path: Path
) -> None:
    """The real limit: 130 s, which Slurm makes 3 minutes; its signal comes 65 s before the end, or up to a
    minute earlier, so the training takes more than 115 s."""
    training = Training(lab_slurm, user, tmp_path / "limit", "elastic", 500)
    training.begin("--time", "2:10")
    training.finish()
    assert int(lab_slurm.job(training.number)["Restarts"]) >= 1
    text = training.log.read_text()
    assert f"ringleader: the time limit is near: job {training.number} is requeued" in text
    assert list(training.losses()) == list(range(1, 501))
    runs = [[step for step, _, restart in training.steps() if restart == run] for run in ("0", "1")]
    assert runs[1][0] in (runs[0][-1], runs[0][-1] + 1)  # from the commit that was written at the end


RATE = """
import time
import torch
import ringleader, ringleader.torch as hvd
hvd.init()
for _ in range(30):
    hvd.allreduce(torch.ones(1000), name="x")
    time.sleep(0.01)
    ringleader.progress(samples=1)
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("per_size", [False, True], ids=["one job", "a job per size"])
def test_sizes_are_measured_in_one_job_or_in_one_for_each_number_of_nodes(
    lab_slurm: LabCluster, user: Workplace, tmp_path: Path, per_size: bool
) -> None:
    (tmp_path / "rate.py").write_text(RATE)
    words = options(lab_slurm, 4, "--ntasks-per-node", "1", "--grid", "1x1,2x1,4x1", "--repeats", "2")
    words += ["--name", "sizes", "--no-page", *(["--job-per-size"] if per_size else [])]
    done = user.run("scale", *words, "--", sys.executable, "rate.py", cwd=tmp_path, within=300)
    assert done.returncode == 0, (done.stdout.decode(), done.stderr.decode())
    numbers = sorted(int(path.stem.removeprefix("slurm-")) for path in tmp_path.glob("slurm-*.out"))
    counts = [lab_slurm.job(str(number))["NumNodes"] for number in numbers]
    assert counts == (["1", "2", "4"] if per_size else ["4"])
    run = json.loads((tmp_path / "runs/sizes/run.json").read_text())
    assert [(point["hosts"], len(point["samples"])) for point in run["points"]] == [(1, 2), (2, 2), (4, 2)]
    assert not run["failure"] and len(run["resumed"]) == len(counts) - 1
    table = (tmp_path / "runs/sizes/report.md").read_text()
    assert all(size in table for size in ("1x1", "2x1", "4x1"))
    assert ("different sessions" in table) == per_size


def test_a_size_that_fails_leaves_no_job_behind_and_the_run_is_continued(
    lab_slurm: LabCluster, user: Workplace, tmp_path: Path
) -> None:
    (tmp_path / "rate.py").write_text(
        f"import pathlib, sys\nif pathlib.Path('bad').exists(): sys.exit(5)\n{RATE}"
    )
    (tmp_path / "bad").touch()
    words = options(lab_slurm, 2, "--grid", "1x1,2x1", "--repeats", "1", "--name", "again", "--no-page")
    words += ["--no-uncoupled", "--job-per-size", "--", sys.executable, "rate.py"]
    done = user.run("scale", *words, cwd=tmp_path, within=200)
    assert done.returncode == 5, (done.stdout.decode(), done.stderr.decode())
    end = time.monotonic() + patience(60.0)
    while lab_slurm.run("squeue", "--noheader").stdout:
        assert time.monotonic() < end
        time.sleep(0.2)
    (tmp_path / "bad").unlink()
    done = user.run("scale", *words, cwd=tmp_path, within=200)
    assert done.returncode == 0, (done.stdout.decode(), done.stderr.decode())
    run = json.loads((tmp_path / "runs/again/run.json").read_text())
    assert [len(point["samples"]) for point in run["points"]] == [1, 1]


@pytest.mark.timeout(400)
def test_doctor_and_bench_use_the_nodes_of_the_allocation(
    lab_slurm: LabCluster, user: Workplace, tmp_path: Path
) -> None:
    config = ["--ssh-config", lab_slurm.lab.ssh_config]
    sizes = ("-b", "8", "-e", "64K", "-f", "8192")
    for what, words in {
        "doctor": ["doctor", "--json"],
        "pairs": ["bench", "p2p", *sizes, "--seconds", "4", "--name", "pairs"],
        "all": ["bench", "allreduce", *sizes, "--iters", "3", "--name", "all"],
    }.items():
        ours = shlex.join([sys.executable, "-m", "ringleader", *words, *config])
        argv = ["sbatch", "--parsable", "--wait", "--nodes=4", "--ntasks-per-node=1", "--time=5"]
        argv += [f"--output={tmp_path}/{what}.out", f"--error={tmp_path}/{what}.err", "--wrap", ours]
        done = subprocess.run(
            argv, cwd=tmp_path, env=user.environ, capture_output=True, text=True, timeout=120, check=False
        )
        out, err = ((tmp_path / f"{what}.{end}").read_text() for end in ("out", "err"))
        if what == "doctor":
            assert done.returncode in (0, 3), err  # a lab's hosts are not all that a check may want
            hosts = [host["host"] for host in json.loads(out)["hosts"]]
        else:
            assert done.returncode == 0, err
            run = json.loads((tmp_path / "runs" / what / "run.json").read_text())
            hosts = [host["name"] for host in run["context"]["hosts"]]
        assert hosts == list(lab_slurm.names)
        assert "Slurm allocation with 4 slots" in err
