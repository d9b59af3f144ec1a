"""The guide "How close to linear am I, and why not closer?": its commands, one after the other, in a lab."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(400)]
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/guides/how-close-to-linear.md").read_text(encoding="utf-8")
SHORTER = {
    r"--seconds \d+": "--seconds 1", r"--repeats \d+": "--repeats 1", r"--steps \d+": "--steps 2",
    r"--epochs \d+": "--epochs 1", r"-e 16M": "-e 256K", r"-e 4M": "-e 64K",
    r"1x1,1x2,2x1": "1x1,2x1 --no-uncoupled", r"python examples": "python " + str(ROOT / "examples"),
}  # fmt: skip
"""What makes the commands short enough for a test."""


def test_the_guides_commands(
    ringleader: Any, scratch_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^[#$] ringleader (.*)$", PAGE, re.MULTILINE)
    assert len(commands) == 11
    for command in commands:
        for long, short in SHORTER.items():
            command = re.sub(long, short, command)
        words = command.split()
        if words[0] == "lab":
            words = [scratch_name if word == "guide" else word for word in words] + ["--ssh-port", "37"]
        elif "--lab" in words:
            words.insert(words.index("--lab") + 1, f"--lab-name={scratch_name}")
        if "runs/scale-after" in words:
            shutil.copytree("runs/scale", "runs/scale-after")
        done = ringleader(*words, timeout=240)
        # What doctor finds depends on the machine.
        assert done.returncode in ((0, 3) if words[0] == "doctor" else (0,)), f"{command}\n{done.stderr}"
        assert done.stdout or words[0] == "lab" or "-o" in words, command
    kept = {path.parent.name for path in Path("runs").glob("*/run.json")}
    assert kept == {"p2p", "allreduce", "train", "scale", "scale-after"}
    assert Path("page.html").stat().st_size > 10_000
