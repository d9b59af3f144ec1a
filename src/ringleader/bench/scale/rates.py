"""How fast a job trains, from what its ranks print or report. Pure: text and numbers in, a Sample out.

Two sources are understood.

**Progress reports** (``ringleader.progress``). Rank r has trained S_r(t) samples at time t, known at its
reports and taken as linear between them. All ranks train together from a₀ = max first report to
b = min last report; of that time the first part w (the warm-up) is left out: a = a₀ + w·(b − a₀). Then

    X = Σ_r (S_r(b) − S_r(a)) / (b − a)

The sum over one common window, not N times the slowest: coupled ranks march in step, so both are the same
there, and independent ranks compete for the machine only while all of them run. A rank's own last seconds,
when others have ended, would count as speed that no job of N ranks has.

Independent ranks that start far apart and train shortly may share no such time, or less than a fifth of the
longest rank's. Then each rank's own time counts, X = Σ_r x_r, and the sample says so (``together``): such a
rate flatters, because the ranks competed less than they would have.

**Lines** of tf_cnn_benchmarks and of Horovod's synthetic benchmarks. Those scripts leave out their warm-up
themselves. tf_cnn_benchmarks prints rows for one worker and a total for all (one worker's rate times their
number), on every rank; Horovod's prints on rank 0. So each rank that speaks gives x_r for one rank, and

    X = N · mean_r x_r          (the sum of x_r where all ranks speak)

**Keras' progress lines** at the end of an epoch have the time of a step (in whole ms), and not how
many samples are in it: x_r is in batches per second, and means something where batches are the same
everywhere. x_r = 1 / median of the epochs' step times, without the first epoch, in which the step is
compiled, where there are others. Epochs of another length than the first are an evaluation's.
"""

from __future__ import annotations

import math
import re
import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ringleader.metrics import Sample
from ringleader.text_files import printed, unprefixed

TOGETHER = 0.2
"""Part of the longest rank's time that all ranks must share for their common window to be taken."""

WARMUP = 0.2
"""Part of the common time that is left out at its beginning unless asked otherwise."""

_RATE = r"(?P<rate>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"


class Kind(StrEnum):
    """What a line reports."""

    ROW = "row"
    """tf_cnn_benchmarks: one worker, since its warm-up."""
    TOTAL = "total"
    """All workers, the whole run."""
    ITERATION = "iteration"
    """Horovod's synthetic benchmark: one worker, one iteration."""
    EPOCH = "epoch"
    """Keras' `fit`: one worker, one epoch, in batches."""


_PATTERNS = (
    (Kind.ROW, re.compile(rf"\s*\d+\s+images/sec: {_RATE} \+/- \S+ \(jitter = ")),
    (Kind.TOTAL, re.compile(rf"\s*total images/sec: {_RATE}\s*$")),
    (Kind.ITERATION, re.compile(rf"\s*Iter #\d+: {_RATE} img/sec per [CGT]PU\b")),
    (Kind.TOTAL, re.compile(rf"\s*Total img/sec on (?P<workers>\d+) [CGT]PU\(s\): {_RATE} \+-")),
)
_EPOCH = re.compile(r"\s*(?P<steps>\d+)/(?P=steps) .*?\b(?P<time>\d+(?:\.\d+)?)(?P<unit>s|ms|us|µs)/step\b")
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}


@dataclass(frozen=True, kw_only=True)
class Line:
    """A rate that a rank printed."""

    kind: Kind
    rate: float
    """Images per second, or batches, positive and finite."""
    workers: int | None = None
    """Workers a total is for, where the line says it."""
    steps: int | None = None
    """Steps of the epoch that the line is of."""


PROGRESS = ("samples", "steps")
STEPS = ("steps", "step_seconds", "exchange_seconds", "waiting_seconds")
"""Numbers of a progress report, and of one of the engine's step reports."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Cumulative numbers of a rank at a time; those that it did not report are 0."""

    time: float
    """Seconds on a clock that all ranks of the job share (see ``reports_of``)."""
    samples: float = 0.0
    steps: float = 0.0
    step_seconds: float = 0.0
    exchange_seconds: float = 0.0
    waiting_seconds: float = 0.0


ORIGIN = Report(time=-math.inf)
"""Where every rank's cumulative numbers begin."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The time in which all ranks trained, warm-up left out."""

    start: float
    end: float


def parse_line(text: str) -> Line | None:
    """Return the rate in a rank's output line, or ``None`` for any other line."""
    for control in "\b\r":  # Keras writes a line over and over
        text = text.rstrip().rpartition(control)[2]
    if len(text) > 1000:
        return None
    if "/step" in text:
        return _parse_epoch(unprefixed(printed(text)))
    if "sec" not in text:
        return None
    text = unprefixed(text)
    for kind, pattern in _PATTERNS:
        if match := pattern.match(text):
            said = match.groupdict()
            workers = int(said["workers"]) if "workers" in said else None
            line = Line(kind=kind, rate=float(said["rate"]), workers=workers)
            return line if 0 < line.rate < math.inf and workers != 0 else None
    return None


def _parse_epoch(text: str) -> Line | None:
    match = _EPOCH.match(text)
    if match is None or int(match["steps"]) < 2 or float(match["time"]) <= 0:
        return None
    seconds = float(match["time"]) * _SECONDS[match["unit"]]
    return Line(kind=Kind.EPOCH, rate=1.0 / seconds, steps=int(match["steps"]))


def rate_of_one(lines: Sequence[Line], ranks: int) -> tuple[float, str] | None:
    """Return (images or batches per second of one rank, which lines said it) from what one rank printed.

    A total is for the workers it names; tf_cnn_benchmarks' names none and means all ``ranks``, unless it
    is nearer to the rank's own row than to that row times ``ranks``: then the script thinks it is alone.
    """
    rows = [line.rate for line in lines if line.kind is Kind.ROW]
    iterations = [line.rate for line in lines if line.kind is Kind.ITERATION]
    totals = [line for line in lines if line.kind is Kind.TOTAL]
    if totals:
        workers = totals[-1].workers
        if workers is None:
            alone = bool(rows) and totals[-1].rate < rows[-1] * math.sqrt(ranks)
            workers = 1 if alone else ranks
        return totals[-1].rate / workers, "total"
    if iterations:
        return statistics.fmean(iterations), "iterations"
    if rows:
        return rows[-1], "rows"
    epochs = [line for line in lines if line.kind is Kind.EPOCH]
    alike = [line.rate for line in epochs if line.steps == epochs[0].steps]
    return (statistics.median_low(alike[1:] or alike), "epochs") if alike else None


def sample_from_lines(lines: Mapping[int, Sequence[Line]], ranks: int) -> Sample | None:
    """Return the job's rate from lines by rank; ``None`` where no rank printed one."""
    heard = [found for said in lines.values() if (found := rate_of_one(said, ranks)) is not None]
    if not heard:
        return None
    rates = [rate for rate, _ in heard]
    return Sample(
        rate=ranks * statistics.fmean(rates),
        slowest_rate=min(rates) if len(rates) > 1 else None,
        source=heard[0][1],
        heard=len(rates),
    )


Stamped = tuple[float, Mapping[str, Any]]
"""A rank's message with the time of its arrival."""


def reports_of(stamped: Sequence[Stamped], names: Sequence[str]) -> list[Report]:
    """Return one rank's messages, given with their times of arrival, by the receiver's clock.

    A rank's ``seconds`` have their own zero on each host. The fastest message shows it best:
    zero = min(arrival − seconds). Messages without ``seconds`` keep their time of arrival.
    """
    own = [m["seconds"] if isinstance(m.get("seconds"), int | float) else None for _, m in stamped]
    pairs = list(zip(stamped, own, strict=True))
    zero = min((at - seconds for (at, _), seconds in pairs if seconds is not None), default=0.0)
    return [
        Report(
            time=at if seconds is None else zero + seconds,
            **{name: float(message.get(name, 0)) for name in names},
        )
        for (at, message), seconds in pairs
    ]


def common_window(series: Mapping[int, Sequence[Report]], ranks: int, warmup: float) -> Window | None:
    """Return the time in which all ``ranks`` trained, without its first part ``warmup`` (0 ≤ w < 1).

    ``None`` where a rank never reported, or where no time is common to all.
    """
    if len(series) < ranks or any(not reports for reports in series.values()):
        return None
    start = max(reports[0].time for reports in series.values())
    end = min(reports[-1].time for reports in series.values())
    start += warmup * (end - start)
    return Window(start=start, end=end) if end > start else None


def _at(reports: Sequence[Report], time: float, of: str) -> float:
    """Return a cumulative number at a time within the reports, linear between two of them."""
    index = bisect_left(reports, time, key=lambda report: report.time)
    if index == len(reports):
        return float(getattr(reports[-1], of))
    after = reports[index]
    if index == 0 or after.time == time:
        return float(getattr(after, of))
    before = reports[index - 1]
    part = (time - before.time) / (after.time - before.time)
    low, high = float(getattr(before, of)), float(getattr(after, of))
    return low + part * (high - low)


def sample_from_progress(series: Mapping[int, Sequence[Report]], window: Window) -> Sample | None:
    """Return the job's rate over ``window``; ``None`` where nothing was trained in it."""
    length = window.end - window.start
    rates, steps = [], []
    for reports in series.values():
        rates.append((_at(reports, window.end, "samples") - _at(reports, window.start, "samples")) / length)
        steps.append(_at(reports, window.end, "steps") - _at(reports, window.start, "steps"))
    if min(rates) <= 0 or min(steps) <= 0:
        return None
    return Sample(
        rate=math.fsum(rates),
        step_seconds=length / min(steps),
        slowest_rate=min(rates) if len(rates) > 1 else None,
        source="progress",
        heard=len(rates),
        seconds=length,
    )


def shares_enough(series: Mapping[int, Sequence[Report]], window: Window | None, warmup: float) -> bool:
    """Tell whether the common time is long enough to stand for the run."""
    if window is None:
        return False
    longest = max(reports[-1].time - reports[0].time for reports in series.values())
    return window.end - window.start >= TOGETHER * (1 - warmup) * longest


def sample_apart(series: Mapping[int, Sequence[Report]], ranks: int, warmup: float) -> Sample | None:
    """Return the sum of the ranks' rates, each over its own time; ``None`` where one has no rate."""
    found = []
    for rank, reports in series.items():
        window = common_window({rank: reports}, 1, warmup)
        sample = None if window is None else sample_from_progress({rank: reports}, window)
        if sample is None:
            return None
        found.append(sample)
    if len(found) < ranks:
        return None
    rates = [sample.rate for sample in found]
    return Sample(
        rate=math.fsum(rates),
        step_seconds=max(sample.step_seconds or 0.0 for sample in found),
        slowest_rate=min(rates) if len(rates) > 1 else None,
        source="progress",
        heard=len(rates),
        seconds=min(sample.seconds for sample in found),
        together=False,
    )


def step_parts(series: Mapping[int, Sequence[Report]], window: Window) -> tuple[float, float, float] | None:
    """Return (step, exchange, waiting) seconds of one step, means over the ranks that reported them.

    Taken between a rank's first and last report inside the window. The engine reports about once a second;
    where a short run has fewer than two in the window, everything up to its last report counts, warm-up
    and all. ``None`` where no rank reported a step.
    """
    found = []
    for reports in series.values():
        inside = [report for report in reports if window.start <= report.time <= window.end]
        chosen = inside if len(inside) > 1 else [ORIGIN, *reports]
        if chosen[-1].steps <= chosen[0].steps:
            continue
        first, last = chosen[0], chosen[-1]
        taken = [getattr(last, name) - getattr(first, name) for name in STEPS[1:]]
        found.append([value / (last.steps - first.steps) for value in taken])
    if not found:
        return None
    total, exchange, waiting = (statistics.fmean(values) for values in zip(*found, strict=True))
    return total, exchange, waiting
