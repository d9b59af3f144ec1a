"""Real Slurm: trainings that are requeued near their limit or when a node fails, sizes, doctor, bench."""

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
from tests.time_limits import patience

pytestmark = [pytest.mark.process, pytest.mark.mpi, pytest.mark.torch, pytest.mark.long]


def steps_in(text: str) -> list[tuple[int, float, str]]:
    found = re.findall(r"step (\d+) loss ([\d.]+) restart (\d*)", text)
    return [(int(step), float(loss), restart or "0") for step, loss, restart in found]


def wait_for_log(place: Path) -> Path:
    end = time.monotonic() + patience(60.0)
    while not (found := list(place.glob("slurm-*.out"))):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found[0]


# --- the nodes are four hosts of a lab --------------------------------------------------------------------

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
    where = f"--on slurm --nodes {nodes} --time 10".split()
    return [*where, "--ssh-config", cluster.lab.ssh_config, *words]


class Training:
    """A training that is sent to Slurm, and followed."""

    def __init__(self, cluster: LabCluster, user: Workplace, place: Path) -> None:
        place.mkdir()
        self.cluster, self.user = cluster, user
        program = [str(HERE / "checkpoint_training.py"), str(LAB_STEPS), str(place / "file")]
        words = options(cluster, 3, "--requeue", "--grace", "5", "--lost-after", "5")
        self.following = user.ringleader("run", *words, "--", sys.executable, *program, cwd=place)
        self.log = wait_for_log(place)
        self.number = self.log.stem.removeprefix("slurm-")

    def steps(self) -> list[tuple[int, float, str]]:
        return steps_in(self.log.read_text())

    def until(self, step: int) -> None:
        end = time.monotonic() + patience(120.0)
        while not any(one[0] >= step for one in self.steps()):
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


LAB_STEPS = 40


@pytest.mark.lab
@pytest.mark.timeout(900)
def test_a_training_on_three_nodes_loses_one_and_ends_with_the_same_losses(
    lab_slurm: LabCluster, user: Workplace, tmp_path: Path
) -> None:
    """The last node, then the first one, which has the script and the launcher."""
    calm = Training(lab_slurm, user, tmp_path / "calm")
    assert re.search(r"running on 3 nodes: \S+", calm.finish())
    wanted = calm.losses()
    assert list(wanted) == list(range(1, LAB_STEPS + 1))
    for which in (-1, 0):
        training = Training(lab_slurm, user, tmp_path / f"lost{which}")
        training.until(12)
        node = lab_slurm.nodes_of(training.number)[which]
        lab_slurm.stop_node(node)
        try:
            told = training.finish()
        finally:
            lab_slurm.revive_node(node)
        assert lab_slurm.job(training.number)["Restarts"] == "1"
        assert node not in lab_slurm.nodes_of(training.number)
        assert f"{training.number}: running (restart 1) on 3 nodes: " in told
        found = training.losses()
        assert found.keys() == wanted.keys()
        assert all(abs(found[step] - wanted[step]) < 1e-5 for step in wanted)
        again = [step for step, _, restart in training.steps() if restart == "1"]
        assert again[0] > 1  # it has not begun anew


@pytest.mark.lab
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


@pytest.mark.lab
@pytest.mark.timeout(600)
def test_sizes_are_measured_in_a_job_for_each_number_of_nodes(
    lab_slurm: LabCluster, user: Workplace, tmp_path: Path
) -> None:
    """One that fails leaves no job behind, and the run is continued."""
    (tmp_path / "rate.py").write_text(
        f"import pathlib, sys\nif pathlib.Path('bad').exists(): sys.exit(5)\n{RATE}"
    )
    (tmp_path / "bad").touch()
    words = options(lab_slurm, 4, "--ntasks-per-node", "1", "--grid", "1x1,2x1,4x1", "--repeats", "2")
    words += ["--name", "sizes", "--no-page", "--job-per-size", "--", sys.executable, "rate.py"]
    done = user.run("scale", *words, cwd=tmp_path, within=200)
    assert done.returncode == 5, (done.stdout.decode(), done.stderr.decode())
    end = time.monotonic() + patience(60.0)
    while lab_slurm.run("squeue", "--noheader").stdout:
        assert time.monotonic() < end
        time.sleep(0.2)
    failed = {path.name for path in tmp_path.glob("slurm-*.out")}
    (tmp_path / "bad").unlink()
    done = user.run("scale", *words, cwd=tmp_path, within=300)
    assert done.returncode == 0, (done.stdout.decode(), done.stderr.decode())
    logs = [path for path in tmp_path.glob("slurm-*.out") if path.name not in failed]
    numbers = sorted(int(path.stem.removeprefix("slurm-")) for path in logs)
    assert [lab_slurm.job(str(number))["NumNodes"] for number in numbers] == ["1", "2", "4"]
    run = json.loads((tmp_path / "runs/sizes/run.json").read_text())
    assert [(point["hosts"], len(point["samples"])) for point in run["points"]] == [(1, 2), (2, 2), (4, 2)]
    table = (tmp_path / "runs/sizes/report.md").read_text()
    assert all(size in table for size in ("1x1", "2x1", "4x1")) and "different sessions" in table
