"""A scaling run that was interrupted, for real: one tiny job before, one after."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """\
import time
import ringleader

for _ in range(6):
    time.sleep(0.02)
    ringleader.progress(samples=4)
"""


def test_a_stopped_run_is_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = (
        "--no-allocation",
        "--no-page",
        "--no-uncoupled",
        "--grid",
        "1x1",
        "--repeats",
        "1",
        "--name",
        "r",
    )
    first = scale(*words, sys.executable, "train.py", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    file = tmp_path / "runs" / "r" / "run.json"
    file.write_text(file.read_text().replace('"repeats": 1', '"repeats": 2'))  # as if the second were missing
    second = scale("--resume", "runs/r", "--no-page", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert "run 1 of 1: 1x1 coupled, repetition 2" in second.stderr
    stored = json.loads(file.read_text())
    assert [sample["sitting"] for sample in stored["points"][0]["samples"]] == [0, 1]
    assert len(stored["resumed"]) == 1 and stored["failure"] == ""
    third = scale("--resume", "runs/r", "--no-page", cwd=tmp_path)
    assert third.returncode == 0, third.stderr
    assert "nothing is left to measure in runs/r" in third.stderr


def scale(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringleader", "scale", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120)
