"""The record of a run, ``DIR/record.jsonl``, written while it runs; `measurements.recorded_job` reads it.

A line is a JSON object of one name, which says what it holds: ``{"steps": {…}}``. First comes ``run``, last
``end``; a launcher that is killed leaves all lines before it. All times are seconds from the launch.

A record is bounded: a line of steps is written each second, and half as often after each MiB of such lines.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from ringleader.dataclass_json import bounded, decoded, document
from ringleader.errors import RefusedError, RequestError
from ringleader.launch.elastic_history import TIME, Event
from ringleader.metrics import number_in
from ringleader.value_class import dataclass

FILE = "record.jsonl"
EVERY_SECONDS = 1.0
PER_PACE = 1 << 20
"""Bytes of steps and samples after which the time between two lines doubles."""
MOST_COMMITS = 16
"""Times of commits that are remembered: a job continues from one of the newest two."""
_KINDS = ("progress", "steps", "step")
"""Reports of how many steps were made: of a rank the first of these that it sends counts."""
MOST = 2**53
"""Above what a rank counts: up to it floats are exact."""
_COUNT: Mapping[str, Any] = {"least": 0, "most": 2**64, "wrong": "{} is not a count"}


@dataclass(frozen=True, kw_only=True)
class Started:
    """Ranks began to run: all of them anew, or those of a job's next generation."""

    at: float = bounded(**TIME)
    hosts: tuple[str, ...]
    """Of each rank, by rank."""
    generation: int = 0
    """Of an elastic job; 0: it is not elastic."""
    kept_until: float | None = bounded(None, **TIME)
    """When the commit was made that the job continues from: later steps are lost. ``None``: not known."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """What ranks did since the line before: of each value, one for each of ``ranks``, or none at all."""

    at: float = bounded(**TIME)
    """When the last report of it came."""
    ranks: tuple[int, ...] = bounded(**_COUNT)
    steps: tuple[float, ...] = bounded((), **_COUNT)
    seconds: tuple[float, ...] = bounded((), **_COUNT)
    """That those steps took but the first one of a process, whose samples are not counted either."""
    timed: tuple[float, ...] = bounded((), **_COUNT)
    """Steps that took ``seconds``; none at all: all of ``steps``."""
    samples: tuple[float, ...] = bounded((), **_COUNT)
    spent: tuple[float, ...] = bounded((), **_COUNT)
    """Seconds of steps of which ``exchange`` and ``waiting`` are parts: these are reported less often."""
    exchange: tuple[float, ...] = bounded((), **_COUNT)
    waiting: tuple[float, ...] = bounded((), **_COUNT)
    times: Mapping[int, int] = bounded({}, **_COUNT)
    """Class of a step's length (`agents.training_progress.length_class`) → steps of all ranks."""
    number: int = bounded(0, **_COUNT)
    """The script's own number of its last step; 0: it gives none."""


@dataclass(frozen=True, kw_only=True)
class GpuSample:
    """One GPU; ``None``: it does not tell."""

    utilization: float | None = bounded(None, least=0, most=1, wrong="{} is not from 0 to 1")
    watts: float | None = bounded(None, least=0, most=1e5, wrong="{} W cannot be")
    hertz: float | None = bounded(None, least=0, most=1e11, wrong="{} Hz cannot be")
    """Of its multiprocessors."""
    memory: int | None = bounded(None, least=0, most=2**50, wrong="{} bytes cannot be")
    """Bytes in use."""


@dataclass(frozen=True, kw_only=True)
class HostSample:
    """Counters of one host; they only grow."""

    at: float = bounded(**TIME)
    host: str
    interfaces: Mapping[str, tuple[int, ...]] = bounded({}, **_COUNT)
    """Name → bytes received, bytes sent."""
    ports: Mapping[str, tuple[int, ...]] = bounded({}, **_COUNT)
    """``mlx5_0/1`` → the same."""
    gpus: Mapping[str, GpuSample] = bounded({})
    """Index → what it says."""
    fault: str = ""
    """What could not be read any more, and why."""


class _Process:
    """What one rank has reported until now, and what of it is in no line yet."""

    def __init__(self) -> None:
        self.rank, self.kind, self.begins = 0, "", True
        self.totals: dict[str, dict[str, float]] = {}
        self.since: dict[str, float] = {}

    def becomes(self, kind: str) -> None:
        """Count reports of another kind from now on: it has counted the steps that are recorded, too."""
        if self.kind:
            self.totals[kind] = {"steps": self.totals.get(self.kind, {}).get("steps", 0.0)}
            self.begins = True
        self.kind = kind

    def take(self, message: Mapping[str, Any], names: Sequence[tuple[str, str]]) -> None:
        """Count the growth of numbers of a report. ``names``: in the report, in the line."""
        now = {name: number_in(message, of) for of, name in names}
        if not all(0 <= value < MOST for value in now.values()):
            raise ValueError("a count is beyond any run")
        before = self.totals.get(message["kind"], {})
        self.totals[message["kind"]] = now
        is_other = not before or any(now[name] < before[name] for name in before)
        if is_other:
            before = dict.fromkeys(now, 0.0)
        is_untimed = message["kind"] in ("progress", "steps") and (is_other or self.begins)
        if is_untimed:
            # When the first step of a start began is not known: rates are taken from its end on.
            self.begins = False
            before |= {name: now[name] for name in ("seconds", "samples") if name in now}
        for name, value in now.items():
            self._add(name, value - before[name])
        if "steps" in now:
            self._add("timed", 0.0 if is_untimed else now["steps"] - before["steps"])

    def _add(self, name: str, value: float) -> None:
        self.since[name] = self.since.get(name, 0.0) + max(0.0, value)


class JobRecord:
    """Writes the record. A disk that fills costs lines and one warning, never the job."""

    def __init__(
        self, directory: str, *, warn: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin a record in a directory, which is made if needed. Raises RequestError, RefusedError."""
        self.path = Path(directory, FILE)
        self._warn, self._clock = warn, clock
        self._processes: dict[object, _Process] = {}
        self._times: dict[int, int] = {}
        self._number = 0
        self._commits: dict[int, float] = {}
        self._pace, self._paced, self._due = EVERY_SECONDS, 0, 0.0
        self._reported = 0.0
        self._lost = 0
        self._next_sample: dict[str, float] = {}
        self._unwritten: dict[str, Any] = {}
        """Host → its newest fault that came before its next sample was due."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(
                self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666
            )
            with contextlib.suppress(OSError):  # where the file system has locks, readers see that it runs
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileExistsError:
            what, hint = f"{self.path} already exists", "name another directory"
            raise RequestError(what, where="--report", hint=hint) from None
        except OSError as error:
            what = f"{self.path} cannot be written: {error.strerror or error}"
            raise RefusedError(what, where="--report") from None
        self.began = clock()

    def now(self) -> float:
        """Return the seconds since the launch."""
        return round(self._clock() - self.began, 4)

    def write(self, name: str, value: object) -> int:
        """Write a line; return its length, 0 where there is no room or the record is closed."""
        if self._file < 0:
            return 0
        line = json.dumps({name: document(value)}, separators=(",", ":"), ensure_ascii=False) + "\n"
        data = line.encode(errors="replace")
        try:
            size = os.fstat(self._file).st_size
            if os.write(self._file, data) == len(data):
                return len(data)
            os.ftruncate(self._file, size)
            why = "no room is left"
        except OSError as error:
            why = error.strerror or str(error)
        self._lost += 1
        if self._lost == 1:
            what = f"{self.path} cannot be written: {why}; the job continues"
            self._warn(f"{what}, and later events will be missing from the report")
        return 0

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)
        self._file = -1  # another file may get its number

    # --- what happens -------------------------------------------------------------------------------------

    def started(
        self, hosts: Sequence[str], event: Event | None = None, living: Collection[object] = ()
    ) -> None:
        """Note that ranks run. ``event``: the generation of an elastic job that begins.

        ``living``: the processes of earlier generations that may report on; the others are forgotten.
        """
        self.flush()
        self._due, self._number = 0.0, 0
        self._processes = {one: known for one, known in self._processes.items() if one in living}
        for known in self._processes.values():
            known.begins = True
        if event is None:
            self.write("started", Started(at=self.now(), hosts=tuple(hosts)))
            return
        kept = self._commits.get(event.commit) if event.commit else 0.0
        now = Started(at=self.now(), hosts=tuple(hosts), generation=event.generation, kept_until=kept)
        self.write("started", now)
        self.event(event)
        self._commits = {number: at for number, at in self._commits.items() if number <= event.commit}

    def committed(self, number: int) -> None:
        """Note that the first host holds a commit of an elastic job."""
        self._commits.setdefault(number, self.now())
        while len(self._commits) > MOST_COMMITS:
            del self._commits[min(self._commits)]

    def event(self, event: Event) -> None:
        """Note an event of the job; its time is ours."""
        self.flush()
        self.write("event", replace(event, at=self.now()))

    def happened(self, kind: str, who: str, why: str) -> None:
        """Note an event of a job that is not elastic: see `Event`."""
        self.event(Event(at=0.0, kind=kind, who=who, why=why))

    def report(self, process: object, rank: int, message: Mapping[str, Any]) -> None:
        """Take a report of a rank, if it is about steps or of its host's counters.

        ``process``: what is the same for all reports of one process, whose rank may change.
        """
        kind = message.get("kind")
        if kind == "host_sample":
            self._sample(message)
        if kind not in ("own", *_KINDS):
            return
        known = self._processes.get(process) or self._processes.setdefault(process, _Process())
        known.rank = rank
        try:
            if kind in _KINDS and (not known.kind or _KINDS.index(kind) < _KINDS.index(known.kind)):
                known.becomes(kind)
            if kind == known.kind:
                known.take(message, _NAMES[kind])
            elif kind not in _PARTS:
                return
            if kind in _PARTS:
                known.take({**message, "kind": "parts"}, _PARTS[kind])
        except ValueError:
            return
        if kind == known.kind:
            times = message.get("times")
            for place, count in times.items() if isinstance(times, dict) else ():
                if _is_count(count) and re.fullmatch("-?[0-9]{1,3}", place):
                    self._times[int(place)] = self._times.get(int(place), 0) + count
            number = message.get("step")
            self._number = max(number, self._number) if _is_count(number) else self._number
        self._reported = self.now()
        if self._reported >= self._due:
            self.flush()

    def flush(self) -> None:
        """Write a line of what ranks have reported since the last one."""
        grown = (one for one in self._processes.values() if any(one.since.values()))
        told = sorted(((one.rank, one.since) for one in grown), key=_first)
        if not told:
            return
        columns = {
            name: tuple(round(since.get(name, 0.0), 6) for _rank, since in told)
            for name in ("steps", "seconds", "timed", "samples", "spent", "exchange", "waiting")
            if any(since.get(name) for _rank, since in told)
        }
        if columns.get("timed") == columns.get("steps"):
            columns.pop("timed", None)
        ranks = tuple(rank for rank, _since in told)
        line = Steps(at=self._reported, ranks=ranks, times=self._times, number=self._number, **columns)
        self._pay(self.write("steps", line))
        self._times = {}
        for one in self._processes.values():
            one.since = {}
        self._due = self._reported + self._pace

    def _pay(self, size: int) -> None:
        """Count bytes of what comes again and again: there is a bound to them."""
        self._paced += size
        if self._paced >= PER_PACE:
            self._paced, self._pace = 0, 2 * self._pace

    def _sample(self, message: Mapping[str, Any]) -> None:
        """Take the counters of a host, as its agent sends them; in place of wrong ones, say what is wrong."""
        host = str(message.get("host", ""))
        now = self.now()
        before = self._unwritten.pop(host, "")
        fault = message.get("fault") or before
        if now < self._next_sample.get(host, 0.0):
            self._unwritten |= {host: fault} if fault else {}
            return
        self._next_sample[host] = now + 0.9 * self._pace
        found, faults = decoded(HostSample, {**message, "at": now, "fault": fault})
        if found is not None and not faults:
            self._pay(self.write("sample", found))
        else:
            place, what = faults[0]
            self._pay(self.write("sample", HostSample(at=now, host=host, fault=f"{place}: {what}")))


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < MOST


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]


_NAMES = {
    "progress": (("steps", "steps"), ("seconds", "seconds"), ("samples", "samples")),
    "steps": (("steps", "steps"), ("seconds", "seconds")),
    "step": (("steps", "steps"), ("step_seconds", "seconds")),
}
"""Kind of report → its numbers and what a line calls them."""
_OWN = (("step_seconds", "spent"), ("waiting_seconds", "waiting"))
_PARTS = {"own": _OWN, "step": (*_OWN, ("exchange_seconds", "exchange"))}


def is_running(path: Path) -> bool:
    """Return whether a launcher of this host is writing a record."""
    try:
        if not path.is_file():  # who writes into a pipe would lose its reader
            return False
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        finally:
            os.close(file)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
