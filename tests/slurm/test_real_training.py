"""A training in a real Slurm that is requeued: near its time limit, and when its node fails."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from tests.conftest import Workplace
from tests.slurm.cluster import SlurmCluster
from tests.time_limits import patience

pytestmark = [pytest.mark.process, pytest.mark.mpi, pytest.mark.torch, pytest.mark.long]
PROGRAM = Path(__file__).with_name("elastic_training.py")
STEPS = 60


def expected() -> list[float]:
    """Losses of two ranks: each step takes a tenth of the mean of the weight and twice the weight."""
    weights = [1.0]
    for _ in range(STEPS):
        weights.append(weights[-1] * (1 - 0.1 * 1.5))
    return weights[1:]


def steps_in(text: str) -> list[tuple[int, float, str]]:
    found = re.findall(r"step (\d+) loss ([\d.]+) restart (\d*)", text)
    return [(int(step), float(loss), restart or "0") for step, loss, restart in found]


@pytest.mark.timeout(600)
def test_a_training_continues_after_its_time_limit_and_after_a_lost_node(
    real_slurm: SlurmCluster, workplace: Workplace, tmp_path: Path
) -> None:
    for name in [name for name in workplace.environ if name.startswith("SLURM_")]:
        del workplace.environ[name]
    workplace.environ |= real_slurm.environ | {"PATH": workplace.environ["PATH"]}
    words = ["run", "--on", "slurm", "-n", "2", "--nodes", "1", "--time", "10", "--requeue", "--grace", "5"]
    words += ["--min-np", "2", "--oversubscribe", "--checkpoint-dir", str(tmp_path / "commits"), "--"]
    following = workplace.ringleader(*words, "python", str(PROGRAM), str(STEPS), cwd=tmp_path)
    log = wait_for_log(tmp_path)
    number = log.stem.removeprefix("slurm-")

    def until(step: int, restart: str) -> None:
        end = time.monotonic() + patience(90.0)
        while not any(one[0] >= step and one[2] == restart for one in steps_in(log.read_text())):
            assert time.monotonic() < end, log.read_text()
            assert following.poll() is None, following.communicate()
            time.sleep(0.1)

    until(5, "0")
    # What `--signal=B:USR1@65` does on its own near the limit.
    assert real_slurm.run("scancel", "--signal=USR1", "--batch", number).returncode == 0
    until(15, "1")
    node = real_slurm.job(number)["NodeList"]
    real_slurm.stop_node(node)
    try:
        out, err = following.communicate(timeout=patience(150.0))
    finally:
        real_slurm.start_node(node)
    assert following.returncode == 0, (out, err)
    assert real_slurm.job(number)["Restarts"] == "2"
    found = steps_in(out.decode())
    assert found == steps_in(log.read_text())  # whoever followed has seen all of it
    losses = dict(zip(range(1, STEPS + 1), expected(), strict=True))
    assert all(abs(loss - losses[step]) < 1e-5 for step, loss, _ in found)
    assert {step for step, _, _ in found} == set(losses)
    # Asked to end, it leaves its last commit: the next run begins with the step behind it.
    runs = [[step for step, _, restart in found if restart == run] for run in ("0", "1", "2")]
    assert runs[1][0] in (runs[0][-1], runs[0][-1] + 1)
    assert runs[2][0] > 1  # a lost node leaves the last commit that was written to a file
    assert runs[2][-1] == STEPS
    told = err.decode()
    assert f"ringleader: the time limit is near: job {number} is requeued" in out.decode()
    assert f"{number}: running (restart 2) on " in told


def wait_for_log(place: Path) -> Path:
    end = time.monotonic() + patience(60.0)
    while not (found := list(place.glob("slurm-*.out"))):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found[0]
