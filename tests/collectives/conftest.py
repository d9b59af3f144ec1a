"""Ranks for the tests of the engine: programs under tests/collectives/programs, in ranks of a real mpirun."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.collectives.layouts import Layout
from tests.commands import finished
from tests.fork_server import RANKS, session_directory
from tests.proxy_rank_pool import ProxyRankPool
from tests.rank_pool import RankPool, RankPools
from tests.time_limits import patience

NOISE = "tcp_peer_recv_connect_ack: invalid header type"
"""mpirun itself prints this when a daemon of some other job on the machine knocks at its port."""

TRANSPORT = " to other hosts: "
"""What a good job on several hosts ends with: the wire that carried its bytes."""

TRAINED = "ringleader: trained at "
"""What a job that made enough optimizer steps ends with."""

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A job that has ended."""

    code: int
    """Exit code of mpirun."""
    out: str
    """Standard output of all ranks."""
    err: str
    """Standard error of all ranks and of mpirun."""

    def passed(self, ranks: int) -> None:
        """Assert that every rank printed its last line, and that nothing unusual went to standard error."""
        assert self._unusual(ranks) == []

    def passed_with_trials(self, ranks: int) -> str:
        """The same where ranks try bucket sizes; return the line that says what was chosen."""
        [said] = self._unusual(ranks)
        assert "ringleader: autotune chose buckets" in said
        return said

    def _unusual(self, ranks: int) -> list[str]:
        done = self.out.count("rank done")
        last = next(reversed(self.err.splitlines()), "")
        fault = f"exit code {self.code}, {done} of {ranks} ranks are done, the last line is {last!r}"
        assert (self.code, done) == (0, ranks), f"{fault}\n{self.err}{self.out}"
        usual = (NOISE, TRANSPORT, TRAINED)
        return [line for line in self.err.splitlines() if not any(word in line for word in usual)]


class Jobs:
    """Carries out programs on ranks of this machine under the embedded MPI."""

    programs = PROGRAMS

    def __init__(self, place: Path, new_pool: type[RankPool] = RankPool) -> None:
        self._pools = RankPools(place, new_pool)

    def __call__(
        self, program: str, *arguments: str, ranks: int, timeout: float = 120, **environ: str
    ) -> Finished:
        """Carry out a program on living ranks; a hang fails the test."""
        limit = patience(timeout)
        done = self._pools.of(ranks).run(PROGRAMS / program, *arguments, timeout=limit, **environ)
        return Finished(code=done.code, out="".join(done.outs), err="".join(done.errs))

    def pass_on(self, layout: Layout, words: str, **environ: str) -> None:
        """Carry out a program, with its arguments in one string, where ``layout`` says; all ranks pass."""
        environ = layout.environ | environ
        transport = environ.get("RINGLEADER_TRANSPORT", layout.transport)
        program, *arguments = words.format(transport=transport).split()
        self(program, *arguments, ranks=layout.size, **environ).passed(layout.size)

    def fresh(
        self,
        program: str,
        *arguments: str,
        ranks: int,
        options: tuple[str, ...] = (),
        forked: bool = True,
        timeout: float = 120,
        **environ: str,
    ) -> Finished:
        """Start ranks for a program that is about a process's own start or end, and wait for its end.

        ``options``: mpirun's. ``forked``: whether PyTorch is there when the program begins.
        """
        mpirun = str(Path(sys.executable).with_name("mpirun"))
        words = (str(PROGRAMS / program), *arguments)
        rank = RANKS.command(*words) if forked else [sys.executable, *words]
        command = [mpirun, "--oversubscribe", *options, "-n", str(ranks), *rank]
        return self.run(command, timeout=timeout, **environ)

    def train_page(
        self, page: Path, place: Path, *, blocks: int, replaced: tuple[str, str] = ("", "")
    ) -> None:
        """Run the Python blocks of a page as one script on 2 ranks, whose parameters are equal at its end.

        ``blocks`` is their number; ``replaced`` is a text of the script and what stands for it.
        """
        found = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        assert len(found) == blocks
        same = (
            "assert len(set(hvd.allgather_object(str([p.tolist() for p in model.parameters()])))) == 1\n"
            'print("rank done", flush=True)\n'
        )
        script = place / "script.py"
        source = "\n".join(found)
        script.write_text((source.replace(*replaced) if replaced[0] else source) + same)
        mpirun = str(Path(sys.executable).with_name("mpirun"))
        self.run([mpirun, "--oversubscribe", "-n", "2", sys.executable, str(script)]).passed(2)

    def run(
        self,
        command: list[str],
        *,
        timeout: float = 120,
        environ: dict[str, str] | None = None,
        **more: str,
    ) -> Finished:
        """Run any command, in ``environ`` or else in a clean environment with ``more`` in it."""
        result = finished(
            command, env=self.environment(**more) if environ is None else environ, timeout=timeout
        )
        return Finished(code=result.returncode, out=result.stdout, err=result.stderr)

    def environment(self, **more: str) -> dict[str, str]:
        return self._pools.environ | session_directory() | more

    def windows(self) -> set[str]:
        """Return what the ranks have in shared memory of the engine's: it has "osc" in its name."""
        return {path.name for path in self._pools.shared_memory.iterdir() if "osc" in path.name}

    def close(self) -> None:
        self._pools.close()


@pytest.fixture(scope="session")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[type[RankPool], Jobs]]:
    """The ranks that live through all tests; MPI proxies do MPI for those of an elastic job."""
    kinds = (RankPool, ProxyRankPool)
    jobs = {kind: Jobs(tmp_path_factory.mktemp("ranks"), kind) for kind in kinds}
    yield jobs
    for one in jobs.values():
        one.close()


def leaving_nothing(jobs: Jobs) -> Iterator[Jobs]:
    """Carry out programs, and see afterwards that they left nothing of ours in shared memory."""
    before = jobs.windows()
    yield jobs
    assert jobs.windows() - before == set()


@pytest.fixture
def jobs(living: dict[type[RankPool], Jobs]) -> Iterator[Jobs]:
    yield from leaving_nothing(living[RankPool])


@pytest.fixture
def proxy_jobs(living: dict[type[RankPool], Jobs]) -> Iterator[Jobs]:
    """Carry out programs in ranks of an elastic job, over MPI proxies."""
    yield from leaving_nothing(living[ProxyRankPool])
