"""The README's proof of the wire: its commands, in a lab, print the lines that it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]


def test_the_commands_of_the_readme(
    ringleader: Any, scratch_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [line.split() for line in re.findall(r"^# ringleader (.*)$", page, re.MULTILINE)]
    shown = re.findall(r"^ringleader: (h\d.*)$", page, re.MULTILINE)
    assert [words[0] for words in commands] == ["lab", "run", "run"] and len(shown) == 4
    monkeypatch.chdir(ROOT)
    printed, codes = "", []
    for words in commands:
        if words[0] == "lab":
            words += ["--name", scratch_name, "--ssh-port", "37"]
        else:
            words[2:2] = [f"--lab-name={scratch_name}", "--threads", "1"]
        done = ringleader(*words, timeout=400)
        codes.append(done.returncode)
        printed += done.stderr
    assert codes == [0, 0, 3], printed
    for line in shown:
        # How many bytes were exchanged, and as how much of it the counters' share is named, varies a little.
        pattern = re.sub(
            r"\d+(\\\.\d+)?\\ MiB", r"[\\d.]+ MiB", re.escape(line.replace("h", f"{scratch_name}-h", 1))
        )
        assert re.search(pattern, printed), f"{pattern}\n{printed}"
