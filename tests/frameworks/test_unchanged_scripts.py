"""`ringleader scale` on scripts that nobody changed: rate, split and page, on 1 and 2 ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.frameworks.conftest import PROGRAMS, RINGLEADER
from tests.time_limits import patience

pytestmark = [pytest.mark.long, pytest.mark.timeout(400), pytest.mark.mpi]

STEPS = 120
SCRIPTS = [
    ("plain_ddp", "torch", "torch.optim", {}),
    ("fsdp2", "torch", "torch.optim", {}),
    ("with_accelerate", "accelerate", "torch.optim", {}),
    ("with_keras", "keras", "keras", {"KERAS_BACKEND": "torch"}),
    ("with_keras", "keras", "keras", {"KERAS_BACKEND": "jax"}),
    ("jax_optax", "optax", "optax", {}),
]


@pytest.mark.parametrize(("script", "package", "by", "environ"), SCRIPTS)
def test_a_script_that_nobody_changed_has_a_rate_a_split_and_a_page(
    script: str, package: str, by: str, environ: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip(package)
    options = ("--no-allocation", "--repeats", "1", "--in-step", "none", "--name", "r", "--oversubscribe")
    options += tuple(f"-x{name}" for name in environ)
    command = (sys.executable, str(PROGRAMS / "unchanged" / f"{script}.py"), str(STEPS))
    done = subprocess.run(
        [RINGLEADER, "scale", *options, "--grid", "1x1,1x2", "--", *command],
        capture_output=True, text=True, cwd=tmp_path, timeout=patience(300), env={**os.environ, **environ},
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    assert f"steps are counted ({by}" in done.stderr, done.stderr
    run = json.loads((tmp_path / "runs/r/run.json").read_text())
    for point, ranks in zip(run["points"], (1, 2), strict=True):
        for sample in (*point["samples"], *point["uncoupled"]):
            assert (sample["source"], sample["heard"]) == ("steps", ranks), sample
            # The input of each step takes 20 ms; what else a step takes depends on the machine.
            assert sample["step_seconds"] >= 0.02
            assert 0 < sample["rate"] <= 50 * ranks
            assert sample["rate"] == pytest.approx(ranks / sample["step_seconds"], rel=0.2)
    report = json.loads((tmp_path / "runs/r/report.json").read_text())
    two = next(size for size in report["results"] if size["ranks"] == 2)
    assert report["unit"] == "steps" and {"sharing", "coupling"} <= set(two["losses"]), two
    assert "steps/s" in (tmp_path / "runs/r/report.html").read_text()
