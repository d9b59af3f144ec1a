"""An elastic job of the campaign: its ranks, strikes, how long it takes to continue, and what it holds."""

import contextlib
import os
import signal
import subprocess
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from campaign import Job, command_line, of_kind, on_hosts, pids, read, stat, until, variable
from elastic_status import KINDS, PHASES, Status

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


class ElasticJob(Job):
    """A job that can be struck; it trains without an end, where no steps are named."""

    def __init__(
        self, *, words: tuple[str, ...], lab: Lab | None = None, steps: int = ENDLESS, after: float = 0.0
    ) -> None:
        """Start ``ringleader run`` with these words. ``steps``, ``after``: see ``elastic_script``."""
        self._statuses: dict[str, Status] = {}
        self._logs: dict[str, _Log] = {}

        def command(tmp: Path) -> tuple[str, ...]:
            self.place = tmp / "ranks"
            self.place.mkdir()
            return str(SCRIPT), str(self.place), str(steps), str(after)

        super().__init__(words, command, lab)

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
        """Say whether as many ranks continue making steps, in the generation that they are in."""
        generation, until = self.members()[0].generation, time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.2)
            there = [one for one in self.members() if one.generation == generation]
            if len(there) != size:
                return False
        return time.monotonic() - min(one.step_at for one in there) < 1.0

    def wait_until_steady(self, size: int, seconds: float) -> bool:
        """Wait until this many ranks make steps together."""

        def steady() -> bool:
            there = self.members()
            if len(there) != size or {(one.size, one.generation) for one in there} != {
                (size, there[0].generation)
            }:
                return False
            return time.monotonic() - min(one.step_at for one in there) < 5.0

        return until(steady, seconds, 0.01, self.runs)

    def wait_for_step(
        self, generation: int, size: int | None, seconds: float, after: float = 0.0
    ) -> float | None:
        """Return when ranks first made a step of a later generation, of this size; None: none did.

        ``after``: steps before that time do not count.
        """

        def ended() -> list[float]:
            return [step.at for step in self.later_steps(generation, after) if size in (None, step.size)]

        found = until(ended, seconds, 10 * LOOK_SECONDS, self.runs)
        return min(found) if found else None

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
        found = until(lambda: list(self.place.glob("*.next")), seconds, LOOK_SECONDS, self.runs)
        for path in found:
            path.unlink()
            return path.stem
        (self.place / "next").unlink(missing_ok=True)
        return None

    def wait_for_end(self, name: str, seconds: float) -> float | None:
        """Return when a rank failed as it was ordered; None where it never came there."""
        status = self.status(name)
        has_ended = until(lambda: not status.alive(), seconds, LOOK_SECONDS, self.runs)
        return float(status.get("struck_at")) if has_ended else None

    def strike(self, name: str, phase: str, kind: str, seconds: float) -> float | None:
        """Have a rank fail in a phase; return when it did, None where it never came there."""
        self.order(name, phase, kind)
        return self.wait_for_end(name, seconds)

    def of_kind(self, words: Collection[str]) -> list[int]:
        """Return the job's processes of a kind."""
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

    def end(self, seconds: float = 20.0) -> list[str]:
        """Tell the launcher to end; return what is left after that.

        A host that nothing reaches ends what it has 30 s after it heard of the launcher's last.
        """
        before = set(self.processes()) - {self.launcher.pid}
        if self.runs():
            self.launcher.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.launcher.wait(seconds)

        def left() -> list[str]:
            """Those that live, but for a lab's own."""
            there = {
                pid: command_line(pid) for pid in sorted(before) if stat(pid)[:1] not in ([], [b"Z"], [b"X"])
            }
            return [
                f"process {pid}: {line[:100]}" for pid, line in there.items() if not line.startswith("sshd")
            ]

        until(lambda: not left(), 40.0, 0.1)
        found = [*left(), *(["the launcher"] if self.runs() else [])]
        for status in self._statuses.values():
            status.close()
        return found


# --- what a job holds -------------------------------------------------------------------------------------

DESCRIPTORS, SHARED_FILES = 16, 10
"""How many more a job may hold than at first: a process may be about to end, others may have just begun."""
KILOBYTES_A_STRIKE = 20
"""How much the memory of one kind of process may grow: the launcher remembers what happened."""
SLACK_KILOBYTES = 20_000


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What the job held at one moment."""

    strikes: int
    """Before it."""
    processes: int
    descriptors: int
    memory_files: int
    """Files in memory (memfd) that its processes have open."""
    memory_file_kilobytes: int
    shared_files: int
    """Files in /dev/shm but those that processes of others have mapped."""
    pss: dict[str, int]
    """Kind of process → kilobytes, those that are shared divided among who shares them."""
    rss: dict[str, int]


def usage_of(job: ElasticJob, strikes: int, survivor: str = "") -> Usage:
    """Look at all processes of a job. ``survivor``: a rank that is told of by itself, too."""
    there = job.processes()
    ranks = {int(one.name.rpartition("-")[2]): one.name for one in job.members()}
    descriptors, memory = 0, dict[int, int]()
    pss, rss = defaultdict[str, int](int), defaultdict[str, int](int)
    for pid, line in there.items():
        kinds = [_kind(line, launcher=pid == job.launcher.pid, rank=pid in ranks)]
        if survivor and ranks.get(pid) == survivor:
            kinds.append("survivor")
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    descriptors += 1
                    if os.readlink(link).startswith("/memfd:"):
                        found = link.stat()
                        memory[found.st_ino] = found.st_blocks // 2
            for words in map(str.split, Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()):
                for kind in kinds if words[0] in ("Pss:", "Rss:") else ():
                    (pss if words[0] == "Pss:" else rss)[kind] += int(words[1])
    return Usage(
        strikes=strikes,
        processes=len(there),
        descriptors=descriptors,
        memory_files=len(memory),
        memory_file_kilobytes=sum(memory.values()),
        shared_files=len(_shared_files() - _mapped_by(pids() - set(there))),
        pss=dict(pss),
        rss=dict(rss),
    )


def _shared_files() -> set[str]:
    every = (str(path) for path in Path("/dev/shm").rglob("*") if path.is_file())
    return {path for path in every if not path.startswith("/dev/shm/rank-pools-")}  # of tests


def _mapped_by(processes: Iterable[int]) -> set[str]:
    """Return the files in /dev/shm that any of these processes has mapped."""
    lines = (line for pid in processes for line in read(f"/proc/{pid}/maps").splitlines())
    return {line[line.index(b"/dev/shm/") :].decode() for line in lines if b" /dev/shm/" in line}


def _kind(line: str, *, launcher: bool, rank: bool) -> str:
    if launcher:
        return "launcher"
    if rank:
        return "ranks"
    if any(word in line for word in PROXY):
        return "proxies"
    if any(word in line for word in HOST_AGENT):
        return "host agent"
    if "fork_server" in line or SCRIPT.name in line:
        return "fork server, rank agents"
    return "others"


def growth(usages: list[Usage]) -> list[str]:
    """Return what has grown with the strikes between the first look and the last one."""
    found, begin, now = [], usages[0], usages[-1]
    for what, more in (("descriptors", DESCRIPTORS), ("memory_files", 4), ("shared_files", SHARED_FILES)):
        before, after = getattr(begin, what), getattr(now, what)
        if after > before + more:
            found.append(f"{before} {what.replace('_', ' ')} became {after}")
    sizes = {"files in memory": [(one.strikes, one.memory_file_kilobytes) for one in usages]}
    for kind in {kind for one in usages for kind in one.pss} - {"others"}:
        sizes[kind] = [(one.strikes, one.pss[kind]) for one in usages if kind in one.pss]
    for kind, looks in sizes.items():
        (first, before), (last, after) = looks[0], looks[-1]
        if after > before + SLACK_KILOBYTES + KILOBYTES_A_STRIKE * (last - first):
            found.append(f"{kind}: {before} kB became {after} kB")
    return found


def lines_of(usages: list[Usage]) -> list[str]:
    """Return a table of what a job held."""
    kinds = sorted({kind for usage in usages for kind in usage.pss})
    lines = [
        f"{'strikes':>8} {'processes':>10} {'descr.':>7} {'memfds':>7} {'MB':>6} {'shm':>5}  PSS/RSS in MB"
    ]
    for one in usages:
        sizes = "; ".join(
            f"{kind} {one.pss.get(kind, 0) / 1e3:.1f}/{one.rss.get(kind, 0) / 1e3:.1f}" for kind in kinds
        )
        lines.append(
            f"{one.strikes:8} {one.processes:10} {one.descriptors:7} {one.memory_files:7} "
            f"{one.memory_file_kilobytes / 1e3:6.1f} {one.shared_files:5}  {sizes}"
        )
    return lines
