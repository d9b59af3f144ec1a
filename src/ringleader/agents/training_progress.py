"""``ringleader.progress(samples=…)``: a training script tells the launcher how much it has trained.

Called on every rank after each step (or every few), it costs about a microsecond: it adds up, and writes one
line to the report pipe at most every 250 ms and once more at exit. Where no launcher listens it only checks
its arguments, so a script may call it always. Steps of a script that never calls it are counted by
`script_watch`, which loads this file by its path: nothing of ours needs to be importable for that.

Lines are JSON objects, each one write of less than PIPE_BUF bytes:

    {"kind": "context", "hostname": …, "cpu": …, "cores": …, "python": …, …}     once
    {"kind": "progress", "samples": 3200, "steps": 50, "seconds": 812.25}     counted from the start
    {"kind": "steps", "by": "torch.optim", "steps": 50, "seconds": 812.25}     the same, of counted steps

``seconds`` is the rank's own ``time.perf_counter()`` at the call that completed these samples. Where the run
is recorded (``RINGLEADER_STEP_TIMES=1``), ``times`` counts the steps since the last line by their length: see
`length_class`. ``step`` is the script's own number of its last step, where it gives one.

Ranks in Pods have no agent of ours beside them, and no pipe: there the same lines go to standard output, once
a second, behind ``ringleader-report RANK`` (``RINGLEADER_REPORT_LINES=1``), and are found in the job's log.
"""

from __future__ import annotations

import atexit
import json
import math
import operator
import os
import platform
import stat
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

INTERVAL = 0.25
"""Seconds between two lines: rates over a second or more do not need finer ones, and each costs the launcher
0.2 ms."""
LOG_INTERVAL = 1.0
"""The same where lines go to a log that people read too."""
LOG_MARK = "ringleader-report"
"""First word of such a line, before the rank."""


class Reporter:
    """Adds up samples and steps, and writes them to a pipe now and then."""

    __slots__ = (
        "_before",
        "_by",
        "_clock",
        "_fd",
        "_interval",
        "_last",
        "_next",
        "_prefix",
        "_samples",
        "_step",
        "_steps",
        "_times",
        "_written",
    )

    def __init__(
        self,
        fd: int | None,
        clock: Callable[[], float] = time.perf_counter,
        *,
        interval: float = INTERVAL,
        prefix: bytes = b"",
        times: bool = False,
    ) -> None:
        """``fd`` is the pipe's write end; with ``None`` nothing is written. ``prefix`` begins each line.

        ``times``: report how long steps took, too.
        """
        self._fd = fd
        self._interval = interval
        self._prefix = prefix
        self._clock = clock
        self._samples = 0
        self._steps = 0
        self._step = 0
        self._written = 0
        self._times: dict[int, int] | None = {} if times else None
        self._before: dict[str, tuple[int, float]] = {}
        self._by = ""
        self._last = 0.0
        self._next = float("-inf")

    def add(self, samples: int, steps: int, step: int | None = None) -> None:
        """Count ``samples`` trained in ``steps`` steps, all finished now. ``step``: the last one's number."""
        if samples.__class__ is not int:
            samples = operator.index(samples)
        if samples <= 0:
            raise ValueError(f"samples={samples}: tell how many samples were trained since the last call")
        if steps.__class__ is not int:
            steps = operator.index(steps)
        if steps <= 0:
            raise ValueError(f"steps={steps}: tell how many steps were made since the last call, at least 1")
        if step is not None:
            self._step = operator.index(step)
            if self._step < 1:
                raise ValueError(f"step={step}: give the number of the last step of the training, from 1")
        self._samples += samples
        self.at(self._steps + steps)

    def at(self, steps: int, by: str = "") -> None:
        """Note that ``steps`` steps have been made in all, the last one now. ``by``: what counted them."""
        if self._fd is None:
            return
        now = self._clock()
        if self._times is not None:
            self._time(self._times, steps, by, now)
        self._steps, self._by, self._last = steps, by, now
        if now >= self._next:
            self._next = now + self._interval
            self.flush()

    def _time(self, times: dict[int, int], steps: int, by: str, now: float) -> None:
        """Count steps by how long each took; where the script reports its steps, those alone."""
        before = self._before.get(by)
        self._before[by] = (steps, now)
        if before is not None and steps > before[0] and (not by or "" not in self._before):
            made = steps - before[0]
            place = length_class((now - before[1]) / made)
            times[place] = times.get(place, 0) + made

    def flush(self) -> None:
        """Write what was counted since the last line, with the time at which it was counted."""
        if self._fd is not None and self._steps != self._written:
            self._written = self._steps
            what = (
                {"kind": "steps", "by": self._by}
                if self._by
                else {"kind": "progress", "samples": self._samples}
            )
            if self._times:
                what = {**what, "times": self._times}
                self._times = {}
            if self._step:
                what = {**what, "step": self._step}
            self.write({**what, "steps": self._steps, "seconds": self._last})

    def write(self, message: Mapping[str, object]) -> None:
        """Write one line; a pipe that nobody reads any more ends the reporting, never the training."""
        if self._fd is None:
            return
        try:
            os.write(self._fd, self._prefix + json.dumps(message).encode() + b"\n")
        except OSError:
            self.stop()

    def stop(self) -> None:
        """Write nothing from here on."""
        self._fd = None


def length_class(seconds: float) -> int:
    """Return the class of a step's length: 32 for each power of two, so 2% wide; 0 begins at 1 s."""
    return math.floor(32 * math.log2(max(seconds, 1e-9)))


def report_fd(environ: Mapping[str, str]) -> int | None:
    """Return the pipe the launcher gave this process, or ``None``.

    A spawned helper process (a DataLoader worker) inherits the variable but not the pipe: the number may
    mean any other file there, so it is used in the rank's own process only, and only if it is a pipe.
    """
    text = environ.get("RINGLEADER_REPORT_FD", "")
    process = sys.modules.get("multiprocessing.process")
    if not text.isascii() or not text.isdigit() or (process and process.parent_process() is not None):
        return None
    try:
        mode = os.fstat(int(text)).st_mode
    except (OSError, OverflowError):
        return None
    return int(text) if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None


def rank_in_pod(environ: Mapping[str, str]) -> str:
    """Return our rank where reports are to be lines of standard output; else the empty text."""
    process = sys.modules.get("multiprocessing.process")
    if environ.get("RINGLEADER_REPORT_LINES") != "1" or (process and process.parent_process() is not None):
        return ""
    ranks = (environ.get(name, "") for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"))
    return next((text for text in ranks if text.isascii() and text.isdigit()), "")


def context_of(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, object]:
    """Return what a measured number must be read with: host, processor, cores, versions."""
    torch = sys.modules.get("torch")
    return {
        "kind": "context",
        "hostname": platform.node(),
        "cpu": cpu_model(cpuinfo),
        "cores": _cores(),
        "python": platform.python_version(),
        "torch": str(getattr(torch, "__version__", "")),
        "machine": machine_of(),
    }


def _cores() -> int:
    try:
        from ringleader.agents.usable_cores import usable_cpus
    except Exception:  # this file was loaded by its path, perhaps by a Python too old for ours
        return len(os.sched_getaffinity(0))
    return usable_cpus()


def machine_of(boot_id: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """Return a word that is equal on all hosts that one kernel plays; empty where that is not known."""
    import hashlib

    try:
        return hashlib.sha256(boot_id.read_bytes()).hexdigest()[:12]
    except OSError:
        return ""


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name as Linux tells it, else the architecture."""
    try:
        with cpuinfo.open(encoding="utf-8", errors="replace") as lines:
            # The first processor's paragraph is enough: the file has one for each of hundreds of cores.
            for _, line in zip(range(40), lines):  # noqa: B905 - Python 3.9 has no strict
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return value.strip()[:120]
    except OSError:
        pass
    return platform.machine()


_reporter: Reporter | None = None


def start() -> Reporter:
    """Return this process's reporter, made at the first call, when the script's own imports are done."""
    global _reporter
    if _reporter is not None:
        return _reporter
    fd, rank = report_fd(os.environ), rank_in_pod(os.environ)
    if fd is None and rank:
        reporter = Reporter(1, interval=LOG_INTERVAL, prefix=f"{LOG_MARK} {rank} ".encode())
    else:
        reporter = Reporter(fd, times=os.environ.get("RINGLEADER_STEP_TIMES") == "1")
    reporter.write(context_of())
    atexit.register(reporter.flush)
    # A forked DataLoader worker shares the pipe; its counts would be added to a rank that is not its own.
    os.register_at_fork(after_in_child=reporter.stop)
    _reporter = reporter
    return reporter


def progress(samples: int, *, steps: int = 1, step: int | None = None) -> None:
    """Tell the launcher that this rank has trained ``samples`` more samples, in ``steps`` more steps.

    Call it on every rank after a step, with that rank's own samples (its batch size, not the global one).
    ``step``: the number of the last step in the whole training, from 1, which a script that resumes from its
    checkpoint continues: then the page of the run knows which steps were made again after a restart.
    Raises ValueError unless all are positive, TypeError unless all are integers.
    """
    start().add(samples, steps, step)
