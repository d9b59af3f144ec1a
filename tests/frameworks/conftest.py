"""Ranks for the tests of the frameworks: programs under tests/frameworks/programs, by `ringleader run`."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.commands import finished
from tests.labs import a_lab
from tests.time_limits import patience

from ringleader.lab.saved_state import Lab

PROGRAMS = Path(__file__).parent / "programs"
RINGLEADER = str(Path(sys.executable).with_name("ringleader"))
_MXNET = Path(__file__).parents[2] / ".venv-mxnet"
MXNET = str(_MXNET / "bin" / "python")
with_mxnet = pytest.mark.skipif(not (_MXNET / ".ready").exists(), reason="`make mxnet` has not been run")


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A job that has ended."""

    code: int
    """Exit code of `ringleader run`."""
    out: str
    """Standard output of all ranks."""
    err: str
    """Standard error of all ranks and of the launcher."""

    def passed(self, ranks: int) -> None:
        """Assert that every rank printed its last line."""
        assert self.code == 0, self.out[-6000:] + self.err[-6000:]
        assert self.out.count("rank done") == ranks, self.out[-6000:] + self.err[-6000:]


Train = Callable[..., Trained]
"""Runs a program on ranks of this machine; the keywords are those of `train`."""


@pytest.fixture
def train() -> Train:
    """Run a program of tests/frameworks/programs, one whose last line on each rank is ``rank done``.

    ``options`` are those of `ringleader run`.
    """

    def run(
        program: str,
        *arguments: str,
        ranks: int,
        timeout: float = 170,
        options: tuple[str, ...] = (),
        python: str = sys.executable,
        **environ: str,
    ) -> Trained:
        timeout = patience(timeout)
        if "RINGLEADER_MISMATCH_PATIENCE" in environ:
            scaled = patience(float(environ["RINGLEADER_MISMATCH_PATIENCE"]))
            environ["RINGLEADER_MISMATCH_PATIENCE"] = f"{scaled:g}"
        command = [
            RINGLEADER,
            "run",
            "--oversubscribe",
            *options,
            "-n",
            str(ranks),
            "--timeout",
            f"{timeout:g}",
        ]
        command += ["--", python, str(PROGRAMS / program), *arguments]
        result = finished(command, env=quiet(os.environ) | environ, timeout=timeout + 30)
        return Trained(code=result.returncode, out=result.stdout, err=result.stderr)

    return run


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts with two slots each, over links of their own."""
    with a_lab("f", hosts=2, port=38) as made:
        yield made


def quiet(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of frameworks that say little and leave one processor to each rank."""
    return dict(environ) | {
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_NUM_INTRAOP_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROGRAMS), environ.get("PYTHONPATH", "")])),
    }
