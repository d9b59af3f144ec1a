"""What the tests of the examples share: the examples' folder on the import path, and ranks to run them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

sys.path.insert(0, str(EXAMPLES))  # an example imports its neighbours, as it does when it is run


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a run of an example left behind."""

    code: int
    lines: list[str]
    """Standard output, with the launcher's ``[rank] `` in front where there was a launcher."""
    errors: str
    """Standard error."""

    def line(self, start: str) -> str:
        """Return the rest of the one line that begins with ``start``."""
        found = [line.removeprefix(start) for line in self.lines if line.startswith(start)]
        assert len(found) == 1, f"{len(found)} lines begin with {start!r}:\n" + "\n".join(self.lines)
        return found[0]


class Run(Protocol):
    """Run an example to its end."""

    def __call__(
        self, example: str, *arguments: object, ranks: int, uncoupled: bool = False, fails: bool = False
    ) -> Ended:
        """On ``ranks`` ranks; ``fails`` says that it is meant to, else a failure fails the test."""
        ...


@pytest.fixture
def run() -> Run:
    """Return a function that runs an example under ``ringleader run``, one thread per rank."""

    def run_example(
        example: str, *arguments: object, ranks: int, uncoupled: bool = False, fails: bool = False
    ) -> Ended:
        command = [sys.executable, "-m", "ringleader", "run", "--oversubscribe", "-n", str(ranks)]
        command += ["env", "RINGLEADER_UNCOUPLED=1"] if uncoupled else []
        command += [sys.executable, str(EXAMPLES / example), *map(str, arguments)]
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command,
            env=environ,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        ended = Ended(code=done.returncode, lines=done.stdout.splitlines(), errors=done.stderr)
        assert (ended.code != 0) == fails, f"exit code {ended.code}\n{done.stdout}\n{done.stderr}"
        assert fails or not ended.errors, f"standard error of a healthy job:\n{ended.errors}"
        return ended

    return run_example
