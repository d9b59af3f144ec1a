"""The guide "Train through failures", from top to bottom in a lab: script, commands, what they say."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.commands import finished
from tests.time_limits import patience

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.timeout(300)]
GUIDES = Path(__file__).resolve().parents[2] / "docs/guides"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LONGEST_WAIT = 60.0
VARYING = re.compile(r"\\?\b\d+(?:\\\.\d+)?\\? (?:ms|s)\b|(?<=\\ )\d+$|\b(?:job|process|commit)\\ \w+")
"""What differs from run to run, in an escaped line: times, names of jobs, processes, commits."""


class Terminals:
    """Two terminals in one directory: one runs the job, the other one all else."""

    def __init__(self, lab: str, place: Path) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environ = {**os.environ, "PATH": path, "RINGLEADER_LAB": lab}
        self.lab, self.place, self.log = lab, place, place / "job.log"
        self.job: subprocess.Popen[bytes] | None = None
        self.printed = ""
        self._read = 0

    def text(self) -> str:
        """Return what both have shown since the last look."""
        shown = self.log.read_text() if self.log.exists() else ""
        return self.printed + shown[self._read :]

    def run(self, line: str) -> None:
        """Run a command of the guide, in our lab and with the numbers of our job."""
        if self.log.exists():
            self._read = len(self.log.read_text())
        line = re.sub(r"\bh([1-4])\b", rf"{self.lab}-h\1", line)
        line = line.replace("lab up", "lab up --ssh-port 38")
        if line.startswith("ringleader run"):
            with self.log.open("wb") as log:
                self.job = subprocess.Popen(
                    ["bash", "-c", f"exec {line}"], cwd=self.place, env=self.environ, stdout=log, stderr=log
                )
            return
        if "kill -9" in line:
            number = re.search(rf"rank 1 .* process (\d+) on {self.lab}-h2", self.log.read_text())
            line = re.sub(r"\d+$", number[1], line)
        done = finished(["bash", "-c", line], cwd=self.place, env=self.environ, timeout=90)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        self.printed = done.stdout + done.stderr

    def wait_for(self, line: str) -> None:
        """Wait until a line of the guide has been shown, whatever its times and numbers are."""
        line = " ".join(line.split()).replace("/home/me", str(self.place))
        escaped = re.escape(re.sub(r"\bh([1-4])\b", rf"{self.lab}-h\1", line))
        pattern = VARYING.sub(r"[\\w. ]+", escaped)
        until = time.monotonic() + patience(LONGEST_WAIT)
        while not re.search(pattern, " ".join(self.text().split())):
            assert self.job is None or time.monotonic() < until, f"{pattern}\n{self.text()}"
            time.sleep(0.1)

    def end_job(self) -> None:
        """Ctrl+C in the job's terminal."""
        if self.job is not None:
            self.job.send_signal(signal.SIGINT)
            self.job.wait(60)


@pytest.fixture
def terminals(scratch_name: str, tmp_path: Path) -> Any:
    made = Terminals(scratch_name, tmp_path)
    yield made
    if made.job is not None:
        made.job.kill()


@pytest.mark.long
def test_the_guide_works_as_it_stands(terminals: Terminals, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    count = 0
    for language, body in BLOCK.findall((GUIDES / "elastic.md").read_text(encoding="utf-8")):
        if language == "python":
            (tmp_path / "train.py").write_text(body)
        for line in body.replace("\\\n", " ").splitlines() if language == "console" else ():
            if line.startswith("# ringleader report"):
                terminals.end_job()
            terminals.run(line.removeprefix("# "))
            count += 1
        for line in body.splitlines() if not language and count else ():
            if line != "…":
                terminals.wait_for(line)
    assert count == 11 and terminals.job is not None and terminals.job.returncode == 130
    elastic = json.loads((tmp_path / "job.json").read_text())["elastic"]
    assert elastic["generations"] == 6
    on_h1 = re.findall(rf"process (\d+) on {terminals.lab}-h1\n", terminals.log.read_text())
    assert len(set(on_h1)) == 1, "h1's rank trained from the beginning to the end"
