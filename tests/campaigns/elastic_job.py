"""An elastic job of the campaign: its ranks, strikes, and how long it takes to continue."""

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from campaign import HOST_AGENT, Job, command_line, of_kind, on_hosts, pids, stat, until, variable

from ringleader.lab.saved_state import Lab, LabHost

SCRIPT = Path(__file__).with_name("elastic_script.py")
ENDLESS = 10**9
PHASES = ("idle", "allreduce", "fused", "gradients", "broadcast", "allgather", "join", "commit", "init")
KINDS = ("kill", "exception", "exit")
LOOK_SECONDS = 0.005
"""Between two looks at what ranks tell: the times are theirs, and they need the processors."""
KEPT_SECONDS = 20.0
"""For the log of a process that has ended."""


@dataclass(frozen=True, kw_only=True)
class Step:
    at: float
    rank: int
    size: int
    generation: int


class Member(NamedTuple):
    """One living rank as it was when it was looked at."""

    name: str
    """Its host and process id there."""
    last: Step


class _Log:
    def __init__(self, path: Path) -> None:
        self._file, self._rest = path.open("rb"), b""
        self.steps: deque[Step] = deque(maxlen=200)
        self.wrong: list[str] = []
        self.struck_at: float | None = None
        self.joins = True
        """Whether it is between two generations."""
        self.ended_at = 0.0

    def alive(self) -> bool:
        """Return whether the process lives, which holds the lock: its number may be of another namespace."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False

    def read(self) -> None:
        """Read what is new, for the last time once the process has ended."""
        if self.ended_at:
            return
        self.ended_at = 0.0 if self.alive() else time.monotonic()
        whole, _, self._rest = (self._rest + self._file.read()).rpartition(b"\n")
        for line in whole.decode(errors="replace").splitlines():
            what, *words = line.split()
            numbers = dict(word.partition("=")[::2] for word in words)
            if what == "wrong":
                self.wrong.append(line)
            elif what == "struck":
                self.struck_at = float(numbers["at"])
            elif what == "step":
                integers = {name: int(numbers[name]) for name in ("rank", "size", "generation")}
                self.steps.append(Step(at=float(numbers["at"]), **integers))
            self.joins = what == "init" if what in ("init", "step") else self.joins


class ElasticJob(Job):
    """A job that can be struck; it trains without an end, where no steps are named."""

    def __init__(
        self, *, words: tuple[str, ...], lab: Lab | None = None, steps: int = ENDLESS, after: float = 0.0
    ) -> None:
        """Start ``ringleader run`` with these words. ``steps``, ``after``: see ``elastic_script``."""
        self._logs: dict[str, _Log] = {}

        def command(tmp: Path) -> tuple[str, ...]:
            self.place = tmp / "ranks"
            self.place.mkdir()
            return str(SCRIPT), str(self.place), str(steps), str(after)

        super().__init__(words, command, lab)

    # --- its ranks ----------------------------------------------------------------------------------------

    def logs(self) -> dict[str, _Log]:
        """Return what every process has written; that of one that ended some time ago is forgotten."""
        for path in self.place.glob("*.log"):
            log = self._logs.get(path.stem) or self._logs.setdefault(path.stem, _Log(path))
            log.read()
            if log.ended_at and time.monotonic() - log.ended_at > KEPT_SECONDS and not log.wrong:
                path.unlink()
                del self._logs[path.stem]
        return self._logs

    def members(self) -> list[Member]:
        """Return the living ranks that have made a step, by rank."""
        logs = self.logs().items()
        found = [Member(name, log.steps[-1]) for name, log in logs if log.steps and not log.ended_at]
        return sorted(found, key=lambda one: one.last.rank)

    def generation(self) -> int:
        """Return the generation of the first rank, 0 where none lives."""
        there = self.members()
        return there[0].last.generation if there else 0

    def past(self) -> bool:
        return any(self.place.glob("*.past"))

    def leaves(self) -> bool:
        """Say whether a rank is between two generations."""
        return any(log.joins and log.steps and not log.ended_at for log in self.logs().values())

    def _is_steady(self, size: int, within: float, generation: int | None = None) -> bool:
        """Say whether this many ranks of one generation have each made a step within these seconds."""
        there = [last for _, last in self.members()]
        kinds = {(one.size, one.generation) for one in there}
        if len(there) != size or len(kinds) != 1 or there[0].size != size:
            return False
        latest = time.monotonic() - min(one.at for one in there)
        return latest < within and generation in (None, there[0].generation)

    def undisturbed(self, size: int, seconds: float) -> bool:
        """Say whether as many ranks continue making steps, in the generation that they are in."""
        generation = self.generation()
        return not until(lambda: not self._is_steady(size, 2.0, generation), seconds, 0.2)

    def wait_until_steady(self, size: int, seconds: float) -> bool:
        return until(lambda: self._is_steady(size, 5.0), seconds, 0.01, self.runs)

    def wait_for_step(
        self, generation: int, size: int | None, seconds: float, after: float = 0.0
    ) -> float | None:
        """Return when ranks first made a step of a later generation, of this size; None: none did.

        ``after``: steps before that time do not count.
        """

        def ended() -> list[float]:
            return [step.at for step in self._later_steps(generation, after) if size in (None, step.size)]

        found = until(ended, seconds, 10 * LOOK_SECONDS, self.runs)
        return min(found) if found else None

    def _later_steps(self, generation: int, after: float) -> list[Step]:
        """Return the steps of later generations that ended after a time, without a look at all the others."""
        found = []
        for log in self.logs().values():
            for step in reversed(log.steps):
                if step.generation <= generation or step.at <= after:
                    break
                found.append(step)
        return found

    def first_step_after(self, generation: int, since: float = 0.0) -> Step:
        """Return the first step of a later generation that ended after a time; there is one."""
        return min(self._later_steps(generation, since), key=lambda step: step.at)

    def last_step_before(self, first: Step) -> float:
        """Return when the last step of an earlier generation ended."""
        steps = [step for log in self._logs.values() for step in log.steps]
        return max((step.at for step in steps if step.generation < first.generation), default=first.at)

    def wrong(self) -> list[str]:
        return [f"{name}: {line}" for name, log in self.logs().items() for line in log.wrong]

    # --- strikes ------------------------------------------------------------------------------------------

    def order(self, name: str, phase: str, kind: str) -> None:
        """Have a rank fail when it comes to a phase next."""
        fresh = self.place / "order.new"
        fresh.write_text(f"{phase} {kind}")
        fresh.rename(self.place / f"{name}.order")

    def wait_for_end(self, name: str, seconds: float) -> float | None:
        """Return when a rank failed as it was ordered; None where it never came there."""
        log = self.logs()[name]
        has_ended = until(lambda: not log.alive(), seconds, LOOK_SECONDS, self.runs)
        log.read()
        return log.struck_at if has_ended else None

    def of_kind(self, words: Collection[str]) -> list[int]:
        return of_kind(words, self.processes())

    @staticmethod
    def on_host(words: Collection[str], host: LabHost) -> list[int]:
        """The same of a lab's host."""
        return of_kind(words, {pid: command_line(pid) for pid in on_hosts([host])})

    def wait_for_new(self, words: Collection[str], known: set[int], seconds: float) -> list[int]:
        """Wait for processes of a kind, beside others of it, that are not known (see `pids`); return some."""
        ours = {variable(pid, "RINGLEADER_JOB_ID") for pid in self.of_kind(words)}

        def new() -> list[int]:
            found = of_kind(words, {pid: command_line(pid) for pid in pids() - known})
            return [pid for pid in found if variable(pid, "RINGLEADER_JOB_ID") in ours]

        return until(new, seconds, 0.005, self.runs)

    # --- the end ------------------------------------------------------------------------------------------

    def end(self) -> list[str]:
        """Tell the launcher to end; return what is left after that.

        A host that nothing reaches ends what it has 30 s after it heard of the launcher's last.
        """
        before = set(self.processes()) - {self.launcher.pid}
        if self.runs():
            self.launcher.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.launcher.wait(20.0)

        def left() -> list[str]:
            """Those that live, but for a lab's own."""
            lines = {
                pid: command_line(pid) for pid in sorted(before) if stat(pid)[:1] not in ([], [b"Z"], [b"X"])
            }
            return [f"process {pid}: {line[:100]}" for pid, line in lines.items() if line[:4] != "sshd"]

        until(lambda: not left(), 40.0, 0.1)
        return [*left(), *(["the launcher"] if self.runs() else [])]


# --- what a job holds -------------------------------------------------------------------------------------

MAY_GROW = {"descriptors": 16, "memfds": 4, "kB": 20_000}
"""How much more the processes that live as long as the job may hold than after the first strikes."""
KILOBYTES_A_STRIKE = 20
"""The launcher remembers what happened."""


def held_by(job: ElasticJob, survivor: str) -> Counter[str]:
    """Return what the launcher, the host agents and one rank hold; ``survivor``: that rank, on this host."""
    kinds = {"launcher": [job.launcher.pid], "host agents": job.of_kind(HOST_AGENT)}
    kinds["survivor"] = [int(survivor.rpartition("-")[2])]
    found = Counter[str]()
    for kind, those in kinds.items():
        for pid in those:
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
            found[f"descriptors of {kind}"] += len(links)
            found[f"memfds of {kind}"] += sum(link.startswith("/memfd:") for link in links)
            sizes = map(str.split, Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines())
            found[f"kB of {kind}"] += sum(int(words[1]) for words in sizes if words[0] == "Pss:")
    return found


def growth(before: Counter[str], after: Counter[str], strikes: int) -> list[str]:
    found = []
    for what in after:
        unit = what.partition(" ")[0]
        more = MAY_GROW[unit] + (KILOBYTES_A_STRIKE * strikes if unit == "kB" else 0)
        if after[what] > before[what] + more:
            found.append(f"{what}: {before[what]} became {after[what]}")
    return found
