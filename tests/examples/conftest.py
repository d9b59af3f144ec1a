"""What the tests of the examples share: the examples' folder on the import path, and ranks to run them."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.commands import finished
from tests.rank_pool import RankPools

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TENSORFLOW_LOG = re.compile(r"\[\d+\] (WARNING: All log messages before absl|[IWE]\d{4} \d\d:)")
"""What TensorFlow says on standard error as it starts, whatever its log level."""

sys.path.insert(0, str(EXAMPLES))  # an example imports its neighbors, as it does when it is run


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


@pytest.fixture(scope="session")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPools]:
    """The ranks that live through all tests."""
    pools = RankPools(tmp_path_factory.mktemp("ranks"))
    yield pools
    pools.close()


@pytest.fixture
def run(pools: RankPools) -> Callable[..., Ended]:
    """Return a function that runs an example on ``ranks`` ranks, one thread per rank, to its end.

    ``fails`` says that it is meant to, else a failure fails the test. ``launched``: by ``ringleader run``, as
    users do it; otherwise in ranks that live through all tests. ``quiet``: a healthy job has nothing
    to say on standard error.
    """

    def run_example(
        example: str,
        *arguments: object,
        ranks: int,
        uncoupled: bool = False,
        fails: bool = False,
        launched: bool = False,
        quiet: bool = True,
    ) -> Ended:
        environ = {"RINGLEADER_UNCOUPLED": "1"} if uncoupled else {}
        words = [str(argument) for argument in arguments]
        if launched:
            ended = _launched(EXAMPLES / example, words, ranks, environ)
        else:
            done = pools.of(ranks).run(EXAMPLES / example, *words, timeout=600, **environ)
            lines = [f"[{rank}] {line}" for rank, out in enumerate(done.outs) for line in out.splitlines()]
            ended = Ended(code=done.code, lines=lines, errors="".join(done.errs))
        assert (ended.code != 0) == fails, f"exit code {ended.code}\n{ended.lines}\n{ended.errors}"
        assert fails or not quiet or not ended.errors, f"standard error of a healthy job:\n{ended.errors}"
        return ended

    return run_example


def _launched(example: Path, words: list[str], ranks: int, environ: dict[str, str]) -> Ended:
    command = [sys.executable, "-m", "ringleader", "run", "--oversubscribe", "-n", str(ranks)]
    command += ["env", *(f"{name}={value}" for name, value in environ.items())] if environ else []
    done = finished(
        [*command, sys.executable, str(example), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=600,
        stdin=subprocess.DEVNULL,
    )
    allowed = re.compile(rf"{TENSORFLOW_LOG.pattern}|ringleader: trained at ")  # the rate, of longer jobs
    errors = "".join(line for line in done.stderr.splitlines(True) if not allowed.match(line))
    return Ended(code=done.returncode, lines=done.stdout.splitlines(), errors=errors)
