"""What campaigns share: options, a job with its processes, a lab, and what is printed of trials in the end.

A campaign is a program that makes trials: mappings with ``line``, ``faults``, ``argv``, ``output`` (lines)
and what its table needs. A trial with faults is an exception, and the exit code is 1.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ringleader.lab import kernel_state, saved_state
from ringleader.lab.saved_state import Lab, LabHost

Result = dict[str, Any]
Found = TypeVar("Found")
PROXY, HOST_AGENT = ("mpi_proxy", "proxy_process"), ("agents/host_agent.py",)
DAEMON = ("prted", "orted", "hydra_pmi_proxy")
"""Words of the command lines of MPI proxies, host agents, and the daemons of MPIs."""


def arguments(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="those with this in their name")
    parser.add_argument("--json-file")
    return parser


def until(
    done: Callable[[], Found], seconds: float, pause: float = 0.01, going: Callable[[], bool] = lambda: True
) -> Found:
    """Ask until something is there, time is over, or nothing continues any more; return the last answer."""
    end = time.monotonic() + seconds
    while not (found := done()) and time.monotonic() < end and going():
        time.sleep(pause)
    return found


# --- processes --------------------------------------------------------------------------------------------


def read(path: str) -> bytes:
    """Return a file of /proc, empty where its process has ended."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def pids() -> set[int]:
    return {int(entry.name) for entry in Path("/proc").glob("[0-9]*")}


def command_line(pid: int) -> str:
    """Return a process's arguments, empty where it has ended."""
    return read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def stat(pid: int) -> list[bytes]:
    """Return a process's state, parent and so on, none where it has ended."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def parent(pid: int) -> int:
    """Return a process's parent, 0 where it has ended."""
    return int((stat(pid) or (b"", b"0"))[1])


def variable(pid: int, *names: str) -> str:
    """Return the first of these variables that a process was started with, empty where it has none."""
    for word in read(f"/proc/{pid}/environ").split(b"\0"):
        name, _, value = word.decode(errors="replace").partition("=")
        if name in names:
            return value
    return ""


def send(number: int, processes: Iterable[int]) -> None:
    """Send a signal to those of these processes that live."""
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def of_kind(words: Collection[str], there: dict[int, str]) -> list[int]:
    """Return processes by their command lines: a Python that runs one of these, or a program of that name."""
    found = []
    for pid, line in there.items():
        program, _, rest = line.partition(" ")
        told = rest if "python" in program else program
        if any(word in told for word in words):
            found.append(pid)
    return sorted(found)


def on_hosts(hosts: Iterable[LabHost]) -> dict[int, LabHost]:
    """Return the processes of these hosts of a lab, each with its host."""
    by_name = {host.namespace: host for host in hosts}
    inside = kernel_state.inside(tuple(by_name)) if by_name else {}
    return {one.pid: by_name[name] for name, there in inside.items() for one in there}


@contextlib.contextmanager
def a_lab(hosts: int = 3, name: str = "", port: str = "34") -> Iterator[Lab]:
    name = name or f"c{os.getpid() % 100000}"
    words = (sys.executable, "-m", "ringleader", "lab")
    size = ("--hosts", str(hosts), "--slots", "2", "--ssh-port", port)
    try:
        subprocess.run((*words, "up", "--lab-name", name, *size), check=True, stdout=subprocess.DEVNULL)
        yield saved_state.load(name)
    finally:
        subprocess.run((*words, "down", "--lab-name", name), check=True, stdout=subprocess.DEVNULL)


class Job:
    """``ringleader run`` with its output and its processes, here or on the hosts of a lab."""

    def __init__(
        self, words: Iterable[str], command: Callable[[Path], Iterable[str]], lab: Lab | None
    ) -> None:
        """Start it. ``command``: what ranks run, for a directory that is the job's own."""
        self.lab = lab
        self.tmp = Path(tempfile.mkdtemp(prefix="rlc-", dir="/tmp"))
        self._before = set(self._on_hosts())
        self.argv = (sys.executable, "-m", "ringleader", "run", *words)
        self.argv += ("--json-file", str(self.tmp / "outcome.json"), "--", sys.executable, *command(self.tmp))
        self.lines: list[str] = []
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RINGLEADER_")}
        self.launcher = subprocess.Popen(
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ | {"TMPDIR": str(self.tmp), "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self.reader = threading.Thread(target=self._listen, daemon=True)
        self.reader.start()

    def _listen(self) -> None:
        for line in self.launcher.stdout:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))

    def runs(self) -> bool:
        return self.launcher.poll() is None

    def says(self, *words: str, after: int = 0, seconds: float = 3.0, times: int = 1) -> bool:
        """Say whether this many lines of the launcher's, from number ``after`` on, have all these words."""
        lines = lambda: [line for line in self.lines[after:] if all(word in line for word in words)]  # noqa: E731
        return until(lambda: len(lines()) >= times, seconds, 0.02)

    def outcome(self) -> dict[str, Any]:
        """Return what --json-file says, empty where the launcher could write nothing."""
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads((self.tmp / "outcome.json").read_bytes()))
        return {}

    def _on_hosts(self) -> dict[int, LabHost]:
        return on_hosts(self.lab.hosts) if self.lab else {}

    def host_of(self, pid: int) -> str:
        """Return the host of a process, as messages name it."""
        host = self._on_hosts().get(pid)
        return host.name if host else "localhost"

    def processes(self) -> dict[int, str]:
        """Return the job's processes with their command lines, also those on a lab's hosts."""
        found = set(self._on_hosts()) - self._before
        found |= {pid for pid in pids() if pid != os.getpid() and self._owns(pid)}
        return {pid: line for pid in sorted(found) if (line := command_line(pid))}

    def _owns(self, pid: int) -> bool:
        """Say whether a process was started by this job: our temporary files are its own."""
        tmp = str(self.tmp)
        if any(tmp in variable(pid, name) for name in ("TMPDIR", "RINGLEADER_JOB_DIR")):
            return True
        line = command_line(pid)
        if f"{tmp}/" in line or "mpirun_supervisor" not in line:
            return f"{tmp}/" in line
        if parent(pid) == self.launcher.pid:
            return True
        with contextlib.suppress(OSError):
            return any(tmp in str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir())
        return False

    def close(self) -> None:
        send(signal.SIGKILL, {*self.processes(), *([self.launcher.pid] if self.runs() else [])})
        self.launcher.wait()
        self.reader.join(5.0)
        shutil.rmtree(self.tmp, ignore_errors=True)


# --- the end ----------------------------------------------------------------------------------------------


def _unwind(number: int, frame: object) -> None:
    """Told to end: the lab goes, what is known is printed. Who runs us may say it twice."""
    for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def carried_out(trials: Iterator[Result]) -> list[Result]:
    """Carry out trials until they are over, or a signal comes; print a line of each."""
    results: list[Result] = []
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _unwind)
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(trials):  # type: ignore[type-var]
        for one in trials:
            results.append(one)
            print(f"{len(results):5} {one['line']}", file=sys.stderr, flush=True)
    return results


def report(
    results: list[Result], table: Iterable[str], further: Iterable[str] = (), json_file: str | None = None
) -> int:
    """Print the table, every exception with the end of its output, and the totals; return the exit code.

    ``further``: exceptions that belong to no trial.
    """
    for line in table:
        print(line)
    bad, further = [one for one in results if one["faults"]], list(further)
    for one in bad:
        print(f"\n!! {one['line']}: {'; '.join(one['faults'])}\n   {' '.join(one['argv'])}")
        print("".join(f"   | {line}\n" for line in one["output"][-40:]), end="")
    for text in further:
        print(f"\n!! {text}")
    load = " ".join(f"{number:.1f}" for number in os.getloadavg())
    print(f"\n{len(results)} trials, {len(bad) + len(further)} exceptions; load {load}")
    if json_file:
        Path(json_file).write_text(json.dumps(results, indent=1) + "\n")
    return 1 if bad or further or not results else 0
