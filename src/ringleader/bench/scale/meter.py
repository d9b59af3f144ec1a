"""The listener of one run: gathers what its ranks print and report, and turns it into a Sample.

On a cluster it is fed the log of the job's launcher, one stream for all ranks (`LauncherLog`): reports of
``ringleader.progress`` are lines of that log (see ``agents.training_progress``); every other line counts as
printed by rank 0, which is enough for rates that scripts print. `rates` has the formulas.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ringleader.agents.training_progress import LOG_MARK
from ringleader.bench.scale.rates import (
    PROGRESS,
    STEPS,
    Line,
    Report,
    Stamped,
    common_window,
    parse_line,
    reports_of,
    sample_apart,
    sample_from_lines,
    sample_from_progress,
    shares_enough,
    step_parts,
)
from ringleader.errors import Fault
from ringleader.metrics import Sample, number_in

MOST = 1000
"""Reports kept of each rank: enough for the ends of the window, whatever the length of the run."""

TAIL = 20
"""Lines of output kept for each run."""

WAYS = (
    "call ringleader.progress(samples=batch_size) on every rank after each step, or print lines as "
    "tf_cnn_benchmarks does (`total images/sec: 1656.82`) or Horovod's synthetic benchmark (`Total img/sec "
    "on 8 GPU(s): 1930.2 +-13.1`)"
)


class Track:
    """A rank's messages, evenly thinned: their numbers are cumulative, so what is left out is not lost."""

    def __init__(self, most: int = MOST) -> None:
        """Keep about ``most`` messages (2 or more), the first and the last among them."""
        self._most = most
        self._every = 1
        self._count = 0
        self._kept: list[Stamped] = []
        self._last: Stamped | None = None

    def add(self, stamped: Stamped) -> None:
        """Take one more message."""
        if self._count % self._every == 0:
            self._kept.append(stamped)
            if len(self._kept) > self._most:
                self._kept = self._kept[::2]
                self._every *= 2
        self._count += 1
        self._last = stamped

    def is_ahead_of(self, message: Mapping[str, Any]) -> bool:
        """Tell whether more steps are known than a message has."""
        return self._last is not None and self._last[1].get("steps", 0) > message.get("steps", 0)

    def kept(self) -> list[Stamped]:
        """Return the messages in their order."""
        if self._last is None or self._kept[-1] is self._last:
            return list(self._kept)
        return [*self._kept, self._last]


class Meter:
    """Listens to one run of a job. ``now`` is a steady clock (s), ``warn`` and ``say`` print."""

    def __init__(
        self,
        *,
        ranks: int,
        warmup: float,
        now: Callable[[], float],
        warn: Callable[[str], None],
        say: Callable[[str], None] | None = None,
        explains: bool = False,
    ) -> None:
        """Make a meter for a run of ``ranks`` ranks. ``explains``: warn soon of what cannot be measured."""
        self.ranks = ranks
        self._explains, self._has_warned = explains, False
        self._began: float | None = None
        self._warmup = warmup
        self._now = now
        self._warn = warn
        self._say = say
        self._said_at = float("-inf")
        self._odd = 0
        self._lines: dict[int, list[Line]] = {}
        self._reports: dict[int, Track] = {}
        self._counted: dict[int, Track] = {}
        self._steps: dict[int, Track] = {}
        self.tail: deque[str] = deque(maxlen=TAIL)
        self._differences: list[str] = []
        self.contexts: dict[int, dict[str, Any]] = {}
        """What each rank reported of its host and its engine."""

    def output(self, rank: int, stream: str, line: bytes) -> None:
        """Take a line that a rank printed."""
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        self.tail.append(f"[{rank}] {text[:300]}")
        if (found := parse_line(text)) is not None:
            self._lines.setdefault(rank, []).append(found)
            self._show_rate()

    def report(self, rank: int, message: dict[str, Any]) -> None:
        """Take a rank's report; one that cannot be read is reported once and ignored."""
        kind = message.get("kind")
        try:
            if kind == "progress":
                self._keep(self._reports, rank, message, ("samples", "seconds"))
                self._show_rate()
            elif kind == "steps":
                self._keep(self._counted, rank, message, ("steps", "seconds"))
                self._show_rate()
            elif kind == "step":
                self._keep(self._steps, rank, message, STEPS)
            elif kind == "consistency":
                self._differences.append(str(message.get("text", "")))
                self._warn(self._differences[-1])
        except ValueError as error:
            self._odd += 1
            if self._odd == 1:
                self._warn(f"rank {rank} sent a {kind} report that cannot be read: {error}")
            return
        if kind == "context" or "transport" in message:
            known = {name: value for name, value in message.items() if name != "kind"}
            self.contexts.setdefault(rank, {}).update(known)

    def explain(self) -> None:
        """Warn, once, of what the rate is, or of that there is none yet; samples need no words."""
        if not self._explains or self._reports or self._lines:
            return
        if self._counted:
            self._explains = False
            by = next(iter(self._counted.values())).kept()[-1][1].get("by")
            what = f"steps are counted ({by}) and summed over the ranks; for samples/s, call "
            self._warn(what + "ringleader.progress(samples=batch_size) on every rank after each step")
        elif self._began is not None and not self._has_warned:
            self._has_warned = True
            self._warn(
                f"no step and no rate has been heard of in {self._now() - self._began:.0f} s: without any, "
                f"whole runs are measured by the wall clock, start included; for a rate, {WAYS}"
            )

    def _keep(
        self, where: dict[int, Track], rank: int, message: Mapping[str, Any], needed: Sequence[str]
    ) -> None:
        for name in needed:
            number_in(message, name)
        track = where.setdefault(rank, Track())
        if track.is_ahead_of(message):  # another process has taken the rank's place
            track = where[rank] = Track()
        track.add((self._now(), message))

    def progress(self, text: str) -> None:
        """Pass on what the launcher is doing: without a text that the ranks run; some seconds later again."""
        if self._say is not None:
            self._say(text or "training")
        if not text and self._began is None:
            self._began = self._now()
        elif not text:
            self.explain()

    def warning(self, text: str) -> None:
        """Pass on what the launcher warns of."""
        self._warn(text)

    def flush(self) -> None:
        """Lines are read at once."""

    def waiting(self) -> int:
        """Lines are read at once."""
        return 0

    def _show_rate(self) -> None:
        """Say the rate so far, once a second; less often with many ranks, whose reports take time to read."""
        now = self._now()
        if self._say is None or now - self._said_at < max(1.0, self.ranks / 8):
            return
        self._said_at = now
        sample = self.sample()
        self._say("training" if sample is None else f"{sample.rate:,.1f}/s so far")

    def sample(self) -> Sample | None:
        """Return the rate that can be read from all that was heard, or ``None``.

        Progress reports win over printed lines: their warm-up and their window are ours. Counted steps come
        before the lines of Keras' epochs, which say no more and say it less often.
        """

        def reports(tracks: dict[int, Track], names: Sequence[str]) -> dict[int, list[Report]]:
            return {rank: reports_of(track.kept(), names) for rank, track in tracks.items()}

        def measured(series: dict[int, list[Report]]) -> Sample | None:
            found: Sample | None = None
            window = common_window(series, self.ranks, self._warmup)
            if window is not None and shares_enough(series, window, self._warmup):
                found = sample_from_progress(series, window)
            if found is None:
                found = sample_apart(series, self.ranks, self._warmup)
            if found is not None and window is not None:
                parts = step_parts(reports(self._steps, STEPS), window)
                if parts is not None:
                    found = replace(found, exchange_seconds=parts[1], waiting_seconds=parts[2])
            return found

        found = measured(reports(self._reports, PROGRESS))
        printed = sample_from_lines({rank: list(said) for rank, said in self._lines.items()}, self.ranks)
        if found is None and printed is not None and printed.source != "epochs":
            found = printed  # of images, where steps are all that is counted
        if found is None and not self._reports:
            series = reports(self._counted, PROGRESS[1:])
            steps = {rank: [replace(one, samples=one.steps) for one in ones] for rank, ones in series.items()}
            found = measured(steps)
            found = found and replace(found, source="steps")
        found = found or printed
        return found and replace(found, tail=tuple(self.tail), differences=tuple(self._differences))

    def whole_run(self, *, strong: bool) -> Sample | None:
        """Return a rate by the wall clock: runs per second, of the job (``strong``) or summed over its ranks.

        The last resort: start, input and everything else are in it. ``None`` where a rank has reported.
        """
        if self._reports or self._counted or self._lines or self._began is None:
            return None
        seconds = self._now() - self._began
        if seconds <= 0:
            return None
        rate = (1 if strong else self.ranks) / seconds
        return Sample(
            rate=rate, source="wall clock", heard=self.ranks, seconds=seconds, tail=tuple(self.tail)
        )

    def why_none(self) -> Fault:
        """Say why no rate could be read, and what to do."""
        heard = self._reports or self._counted
        silent = [rank for rank in range(self.ranks) if rank not in heard]
        if not heard:
            return Fault(where="COMMAND", what="no rate can be read from this script", hint=WAYS)
        if silent:
            names = ", ".join(str(rank) for rank in silent[:8]) + (" …" if len(silent) > 8 else "")
            never = "called ringleader.progress" if self._reports else "made a step of an optimizer"
            return Fault(
                where="COMMAND",
                what=f"of {self.ranks} ranks, these never {never}: {names}",
                hint="call ringleader.progress on every rank, with that rank's own samples",
            )
        return Fault(
            where="COMMAND",
            what="the ranks did not train together long enough to read a rate",
            hint="let it train longer: at least a few seconds and some ten steps, in every rank at once",
        )


_REPORT = re.compile(rf"{LOG_MARK} ([0-9]{{1,7}}) (\{{.*\}})\s*$")
LONGEST_LINE = 1 << 16
"""Bytes of a line that are kept: a log without an end of line must not fill our memory."""


class LauncherLog:
    """Cuts a log into lines and passes each to a meter."""

    def __init__(self, listener: Meter, ranks: int) -> None:
        """``ranks``: of the job; reports of others are not believed."""
        self._listener, self.ranks = listener, ranks
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        self._rest = rest[:LONGEST_LINE]

    def end(self) -> None:
        """Take what is left as a line."""
        if self._rest:
            self._line(self._rest)
        self._rest = b""

    def _line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        found = report_in(text)
        if found is None:
            self._listener.output(0, "stdout", line + b"\n")
        elif found[0] < self.ranks:
            self._listener.report(*found)


def report_in(text: str) -> tuple[int, dict[str, Any]] | None:
    """Return (rank, report) of a line, whatever mpirun or an unfinished line of the script put before it."""
    match = _REPORT.search(text)
    if match is None:
        return None
    try:
        message = json.loads(match[2])
    except (ValueError, RecursionError):
        return None
    return (int(match[1]), message) if isinstance(message, dict) else None
