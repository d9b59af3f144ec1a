"""One elastic job of the campaign: start it, find its ranks, strike, see how long it takes to go on."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from elastic_status import KINDS, PHASES, Status
from faults_world import command_line, started, variable

from ringleader.lab import kernel_state
from ringleader.lab.saved_state import Lab, LabHost

SCRIPT = Path(__file__).with_name("elastic_script.py")
ENDLESS = 10**9
PROXY, HOST_AGENT = ("mpi_proxy", "proxy_process"), ("agents/host_agent.py",)
DAEMON = ("prted", "orted", "hydra_pmi_proxy")
"""Words of the command lines of MPI proxies, host agents, and the daemons of MPIs."""
LOOK_SECONDS = 0.005
"""Between two looks at what ranks tell: the times are theirs, and they need the processors."""
KEPT_SECONDS = 20.0
"""For the log of a process that has ended."""
_LAST_STEPS = 200


@dataclass(frozen=True, kw_only=True)
class Member:
    """One rank process as it was when it was looked at."""

    name: str
    """Its host and process id there."""
    rank: int
    size: int
    generation: int
    step: int
    step_at: float


@dataclass(frozen=True, kw_only=True)
class Step:
    """One that a rank made."""

    at: float
    size: int
    generation: int


@dataclass
class _Log:
    """What was read of a rank's log."""

    at: int = 0
    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=_LAST_STEPS))
    begins: dict[int, float] = field(default_factory=dict)
    """Generation → when its first step began."""
    wrong: list[str] = field(default_factory=list)
    is_whole: bool = False
    """Whether its process had ended when it was read last."""


class ElasticJob:
    """A job that can be struck; it trains without an end, where no steps are named."""

    def __init__(
        self, *, words: tuple[str, ...], lab: Lab | None = None, steps: int = ENDLESS, after: float = 0.0
    ) -> None:
        """Start ``ringleader run`` with these words. ``steps``, ``after``: see ``elastic_script``."""
        self.lab = lab
        self.tmp = Path(tempfile.mkdtemp(prefix="rle-", dir="/tmp"))
        self.place = self.tmp / "ranks"
        self.place.mkdir()
        self.argv = (sys.executable, "-m", "ringleader", "run", *words)
        self.argv += ("--json-file", str(self.tmp / "outcome.json"), "--")
        self.argv += (sys.executable, str(SCRIPT), str(self.place), str(steps), str(after))
        self.lines: list[str] = []
        self._statuses: dict[str, Status] = {}
        self._logs: dict[str, _Log] = {}
        self.launcher = started(self.argv, self.tmp)
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.launcher.stdout is not None
        for line in self.launcher.stdout:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))

    def runs(self) -> bool:
        """Say whether the launcher has not ended."""
        return self.launcher.poll() is None

    def says(self, *words: str, after: int = 0, seconds: float = 3.0, times: int = 1) -> bool:
        """Say whether so many lines of the launcher's, from number ``after`` on, have all these words."""
        until = time.monotonic() + seconds
        while True:
            if sum(all(word in line for word in words) for line in self.lines[after:]) >= times:
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.02)

    # --- its ranks ----------------------------------------------------------------------------------------

    def status(self, name: str) -> Status:
        """Return the numbers of a process."""
        if name not in self._statuses:
            self._statuses[name] = Status(self.place / f"{name}.status")
        return self._statuses[name]

    def members(self) -> list[Member]:
        """Return the living ranks, by rank; forget those that are dead."""
        found = []
        for path in self.place.glob("*.status"):
            name, status = path.stem, self.status(path.stem)
            if not status.alive():
                self._statuses.pop(name).close()
                path.unlink(missing_ok=True)
            elif status.get("generation"):
                numbers = {one: status.get(one) for one in ("rank", "size", "generation", "step", "step_at")}
                found.append(Member(name=name, **numbers))
        return sorted(found, key=lambda one: one.rank)

    def past(self) -> bool:
        """Say whether a rank has made its last commit."""
        return any(self.place.glob("*.past"))

    def leaves(self) -> bool:
        """Say whether a rank is between two generations."""
        init = PHASES.index("init") + 1
        there = [self.status(path.stem) for path in self.place.glob("*.status")]
        return any(one.get("generation") and one.get("phase") == init for one in there)

    def undisturbed(self, size: int, seconds: float) -> bool:
        """Say whether as many ranks go on making steps, in the generation that they are in."""
        generation, until = self.members()[0].generation, time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.2)
            there = [one for one in self.members() if one.generation == generation]
            if len(there) != size:
                return False
        return time.monotonic() - min(one.step_at for one in there) < 1.0

    def wait_until_steady(self, size: int, seconds: float) -> bool:
        """Wait until so many ranks make steps together."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.runs():
            there = self.members()
            alike = {(one.size, one.generation) for one in there}
            fresh = there and time.monotonic() - min(one.step_at for one in there) < 5.0
            if len(there) == size and len(alike) == 1 and there[0].size == size and fresh:
                return True
            time.sleep(0.01)
        return False

    def wait_for_step(
        self, generation: int, size: int | None, seconds: float, after: float = 0.0
    ) -> float | None:
        """Return when ranks first made a step of a later generation, of this size; None: none did.

        ``after``: steps before that time do not count.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.runs():
            steps = self.later_steps(generation, after)
            if found := [one.at for one in steps if size in (None, one.size)]:
                return min(found)
            time.sleep(10 * LOOK_SECONDS)
        return None

    def later_steps(self, generation: int, after: float) -> list[Step]:
        """Return the steps of later generations that ended after a time, without a look at all the others."""
        self._read_logs()
        found = []
        for log in self._logs.values():
            for step in reversed(log.steps):
                if step.generation <= generation or step.at <= after:
                    break
                found.append(step)
        return found

    def steps(self) -> list[Step]:
        """Return the last steps of every process."""
        self._read_logs()
        return [step for log in self._logs.values() for step in log.steps]

    def step_seconds(self, generation: int) -> list[float]:
        """Return how long the steps of a generation took, but for the first ones: from step to step."""
        self._read_logs()
        pairs = [pair for log in self._logs.values() for pair in pairwise(log.steps)]
        return [b.at - a.at for a, b in pairs if a.generation == b.generation == generation]

    def begin_of(self, generation: int) -> float:
        """Return when the last of its ranks began the first step of a generation."""
        self._read_logs()
        return max(log.begins.get(generation, 0.0) for log in self._logs.values())

    def wrong(self) -> list[str]:
        """Return what ranks found to be wrong."""
        self._read_logs()
        return [f"{name}: {line}" for name, log in self._logs.items() for line in log.wrong]

    def _read_logs(self) -> None:
        """Read what is new; the logs of processes that have ended are read to their end and removed."""
        for path in self.place.glob("*.log"):
            log = self._logs.setdefault(path.stem, _Log())
            if not log.is_whole:
                log.is_whole = not path.with_suffix(".status").exists()
                self._read_log(path, log)
            if log.is_whole and time.time() - path.stat().st_mtime > KEPT_SECONDS:
                path.unlink()
                if not log.wrong:
                    del self._logs[path.stem]

    @staticmethod
    def _read_log(path: Path, log: _Log) -> None:
        with path.open("rb") as file:
            file.seek(log.at)
            whole, end, _ = file.read().rpartition(b"\n")
        log.at += len(whole + end)
        for line in whole.decode(errors="replace").splitlines():
            words = dict(word.partition("=")[::2] for word in line.split()[1:])
            if line.startswith("wrong"):
                log.wrong.append(line)
            elif words.get("generation", "").isdigit():
                at, size, generation = float(words["at"]), int(words["size"]), int(words["generation"])
                if line.startswith("begins"):
                    log.begins[generation] = at
                else:
                    log.steps.append(Step(at=at, size=size, generation=generation))

    # --- strikes ------------------------------------------------------------------------------------------

    def order(self, name: str, phase: str, kind: str) -> None:
        """Have a rank fail when it comes to a phase next."""
        number = PHASES.index(phase) + 1
        self.status(name).set(ordered_phase=number, ordered_kind=KINDS.index(kind) + 1)

    def order_next(self, kind: str) -> None:
        """Have the rank that starts next fail in its ``init``."""
        fresh = self.place / "next.new"
        fresh.write_text(kind)
        fresh.rename(self.place / "next")

    def wait_for_next(self, seconds: float) -> str | None:
        """Return the name of the rank that took the order."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.runs():
            for path in self.place.glob("*.next"):
                path.unlink()
                return path.stem
            time.sleep(LOOK_SECONDS)
        (self.place / "next").unlink(missing_ok=True)
        return None

    def wait_for_end(self, name: str, seconds: float) -> float | None:
        """Return when a rank failed as it was ordered; None where it never came there."""
        status, until = self.status(name), time.monotonic() + seconds
        while time.monotonic() < until and self.runs():
            if not status.alive():
                return float(status.get("struck_at"))
            time.sleep(LOOK_SECONDS)
        return None

    def strike(self, name: str, phase: str, kind: str, seconds: float) -> float | None:
        """Have a rank fail in a phase; return when it did, None where it never came there."""
        self.order(name, phase, kind)
        return self.wait_for_end(name, seconds)

    def processes(self) -> dict[int, str]:
        """Return the job's processes with their command lines, also those on a lab's hosts."""
        hosts = self.lab.hosts if self.lab else ()
        on_hosts = kernel_state.inside(tuple(host.namespace for host in hosts)) if hosts else {}
        found = {one.pid for there in on_hosts.values() for one in there}
        found |= {pid for pid in pids() if pid in found or self._owns(pid)}
        return {pid: line for pid in sorted(found) if (line := command_line(pid))}

    def _owns(self, pid: int) -> bool:
        """Say whether a process was started by this job: our temporary files are its own."""
        return any(str(self.tmp) in variable(pid, name) for name in ("TMPDIR", "RINGLEADER_JOB_DIR"))

    def of_kind(self, words: Collection[str]) -> list[int]:
        """Return the job's processes of a kind."""
        return _of_kind(words, self.processes())

    def wait_for_new(self, words: Collection[str], known: set[int], seconds: float) -> list[int]:
        """Wait for processes of a kind, beside others of it, that are not known (see `pids`); return some."""
        until = time.monotonic() + seconds
        ours = {variable(pid, "RINGLEADER_JOB_ID") for pid in self.of_kind(words)}
        while time.monotonic() < until and self.runs():
            new = {pid: command_line(pid) for pid in pids() - known}
            if found := [pid for pid in _of_kind(words, new) if variable(pid, "RINGLEADER_JOB_ID") in ours]:
                return found
            time.sleep(0.005)
        return []

    @staticmethod
    def on_host(words: Collection[str], host: LabHost) -> list[int]:
        """The same of a lab's host."""
        inside = kernel_state.inside((host.namespace,))[host.namespace]
        return _of_kind(words, {one.pid: command_line(one.pid) for one in inside})

    # --- the end ------------------------------------------------------------------------------------------

    def outcome(self) -> dict[str, Any]:
        """Return what --json-file says, empty where there is nothing."""
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads((self.tmp / "outcome.json").read_bytes()))
        return {}

    def end(self, seconds: float = 20.0) -> list[str]:
        """Tell the launcher to end; return what is left after that.

        A host that nothing reaches ends what it has 30 s after it heard of the launcher's last.
        """
        before = set(self.processes()) - {self.launcher.pid}
        if self.launcher.poll() is None:
            self.launcher.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.launcher.wait(seconds)
        until = time.monotonic() + 40.0
        while (left := self._left(before)) and time.monotonic() < until:
            time.sleep(0.1)
        if self.launcher.poll() is None:
            left.append("the launcher")
            self.launcher.kill()
            self.launcher.wait()
        self._reader.join(5.0)
        for status in self._statuses.values():
            status.close()
        return left

    @staticmethod
    def _left(before: set[int]) -> list[str]:
        """Return those of these processes that live, but for a lab's own."""
        there = {pid: command_line(pid) for pid in sorted(before) if _alive(pid)}
        return [
            f"process {pid}: {words[:100]}" for pid, words in there.items() if not words.startswith("sshd")
        ]

    def remove(self) -> None:
        """Remove its files."""
        shutil.rmtree(self.tmp, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def pids() -> set[int]:
    """Return all processes of the machine."""
    return {int(entry.name) for entry in Path("/proc").glob("[0-9]*")}


def _of_kind(words: Collection[str], there: dict[int, str]) -> list[int]:
    """Return processes by their command lines: a Python that runs one of these, or a program of that name."""
    found = []
    for pid, line in there.items():
        program, _, rest = line.partition(" ")
        told = rest if "python" in program else program
        if any(word in told for word in words):
            found.append(pid)
    return sorted(found)
