"""Builders that the pure tests share. Nothing here touches the system, except to compare golden files."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringleader.cli.main import main
from ringleader.plan.job import Family, Host, Mpi
from ringleader.plan.rank_placement import HostFacts

GOLDEN = Path(__file__).parent.parent / "golden" / "run"
Call = Callable[..., tuple[int, str, str]]
"""Words of a command line → exit code, standard output, standard error."""


STARTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.system"})
_pure: list[str] = []
"""The test that runs, if it is one that starts nothing."""


def _audit(event: str, _arguments: object) -> None:
    if event in STARTS and _pure:
        raise AssertionError(f"{_pure[0]} starts a process: mark it pytest.mark.process")


sys.addaudithook(_audit)


@pytest.fixture(autouse=True)
def starts_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """What `make test-quick` runs starts no process, or it would not be quick for long."""
    if request.node.get_closest_marker("process") is None:
        _pure.append(request.node.nodeid)
    yield
    _pure.clear()


@pytest.fixture(scope="session")
def make_facts() -> Callable[..., HostFacts]:
    """A host as the probe describes it: own identity, cores 0…n-1."""

    def make(
        name: str = "h1",
        slots: int | None = None,
        *,
        cores: int = 4,
        gpus: tuple[str, ...] = (),
        max_slots: int | None = None,
        identity: str | None = None,
        addresses: tuple[str, ...] = (),
        cpusets: tuple[tuple[int, ...], ...] = (),
    ) -> HostFacts:
        return HostFacts(
            host=Host(name=name, slots=slots, max_slots=max_slots),
            hostname=name,
            identity=identity if identity is not None else f"id-{name}",
            is_local=name == "localhost",
            cpus=tuple(range(cores)),
            cpusets=cpusets,
            gpus=gpus,
            addresses=addresses,
        )

    return make


@pytest.fixture(scope="session")
def make_mpi() -> Callable[[Family], Mpi]:
    """An MPI of a family under /opt."""

    def make(family: Family) -> Mpi:
        return Mpi(
            family=family,
            version={"openmpi5": "5.0.11", "openmpi4": "4.1.4", "mpich": "4.0.2", "intel": "2021.19"}[family],
            mpirun=f"/opt/{family}/bin/mpirun",
            library=f"/opt/{family}/lib/libmpi.so",
            prefix=f"/opt/{family}",
        )

    return make


@pytest.fixture(scope="session")
def golden() -> Callable[[str, str], None]:
    """Compare a text with its file in tests/golden/run.

    ``RINGLEADER_RENEW_GOLDENS=1 pytest tests/unit`` writes the files anew; look at the difference with git.
    """

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("RINGLEADER_RENEW_GOLDENS") == "1":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing; RINGLEADER_RENEW_GOLDENS=1 writes it"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run the command line: (exit code, standard output, standard error). No cluster is known."""
    monkeypatch.setenv("KUBECONFIG", "/dev/null")

    def run(*argv: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([str(word) for word in argv])
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return run
