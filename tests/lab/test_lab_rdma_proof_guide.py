"""The guide "Is my job really on RDMA?": its commands in a lab print the lines that it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.long]
PAGE = (Path(__file__).resolve().parents[2] / "docs/guides/is-my-job-on-rdma.md").read_text(encoding="utf-8")


def test_the_guides_commands(ringleader: Any, scratch_name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (script,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "train.py").write_text(script)
    commands = re.findall(r"^# ringleader (.*)$", PAGE, re.MULTILINE)
    shown = re.findall(r"^ringleader: (h\d.*)$", PAGE, re.MULTILINE)
    printed, codes = "", []
    for command in commands:
        words = command.replace("train.py", str(tmp_path / "train.py")).split()
        if words[0] == "lab":
            words += ["--name", scratch_name, "--ssh-port", "36"]
        else:
            words.insert(words.index("--lab") + 1, f"--lab-name={scratch_name}")
        done = ringleader(*words, timeout=240)
        codes.append(done.returncode)
        printed += done.stderr
    assert codes == [0, 0, 3], printed
    for line in shown:
        carried = re.escape(line.replace("h", f"{scratch_name}-h", 1))
        pattern = re.sub(r"carried\\ \d+\\ MiB|1\\\.0\d", r"[\\w. ]+", carried)
        assert re.search(pattern, printed), f"{pattern}\n{printed}"
