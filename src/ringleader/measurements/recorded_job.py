"""A recorded run of a job, made of the lines of `launch.job_record`, and what follows from them. Pure.

`report.recorded_job` puts it into words. Seconds are those since the launch. The wall clock is divided thus:

    start    until the first step of the job begins           between  without ranks that train
    steps    steps that count                                 pause    in training, beside the steps
    again    steps that were lost, as no checkpoint had them  end      after the last step

Goodput is the share of ``steps``. A start or generation continues from a commit, or with the step whose
number the script gives: steps that were made after it, until then, are lost. Where neither is known, goodput
is between two bounds: all earlier steps are lost, or none.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ringleader.dataclass_json import bounded, decoded
from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.launch.elastic_history import Event
from ringleader.launch.job_record import HostSample, Started, Steps
from ringleader.measurements.trace_split import Split
from ringleader.metrics import TIME_OR_NONE, ComparableRate, Spread
from ringleader.scaling import Context, StoredRun

PAUSE_SECONDS = 1.0
"""What steps of a line take beyond twice their median time is a pause, from this length on."""
MOST_FAULTS = 20
_COLUMNS = ("steps", "seconds", "timed", "samples", "spent", "exchange", "waiting")


@dataclass(frozen=True, kw_only=True)
class Begun:
    """The first line of a record."""

    schema: int
    context: Context
    again: tuple[str, ...]
    """The command of ours that ran it."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The last line of a record."""

    at: float = bounded(**TIME_OR_NONE)
    exit_code: int
    reason: str = ""
    context: Context
    """With what the run showed of its hosts and versions."""
    proof: TransportProof | None = None
    split: Split | None = None
    """Where the steps went that ``--profile`` recorded."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A piece of the wall clock."""

    begin: float
    end: float
    what: str
    """``steps``, ``pause``, ``again``; ``unsure`` of steps that may have been lost."""

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.begin


@dataclass(frozen=True, kw_only=True)
class JobRun(StoredRun):
    """A job that was recorded, or is being recorded."""

    kind = "job"
    settings = ("ranks",)
    alike = (("unit", "unit"), ("ranks", "number of ranks"))

    name: str
    context: Context
    again: tuple[str, ...]
    starts: tuple[Started, ...] = ()
    steps: tuple[Steps, ...] = ()
    events: tuple[Event, ...] = ()
    samples: tuple[HostSample, ...] = ()
    ended: Ended | None = None
    """``None``: it runs, or its launcher was killed."""
    is_running: bool = False
    faults: tuple[str, ...] = ()
    """What of the record could not be read."""
    schema: int = 1

    def unlike(self, other: StoredRun) -> str:
        """See `StoredRun`."""
        silent = [one.name for one in (self, other) if not one.measured]
        return f"no step was reported in {silent[0]}" if silent else super().unlike(other)

    @property
    def failure(self) -> str:  # type: ignore[override]
        """How the job failed."""
        return "" if self.ended is None or not self.ended.exit_code else self.ended.reason

    @property
    def measured(self) -> bool:
        """Whether a step was reported."""
        return bool(self.steps)

    @property
    def ranks(self) -> int:
        """The most ranks that it had at a time."""
        return max((len(one.hosts) for one in self.starts), default=0)

    @cached_property
    def seconds(self) -> float:
        """The wall clock: to the end, or to the last line."""
        lines: tuple[Any, ...] = (*self.starts, *self.steps, *self.events, *self.samples)
        last = max((one.at for one in lines), default=0.0)
        return last if self.ended is None else max(last, self.ended.at)

    @cached_property
    def unit(self) -> str:
        """What rates count."""
        return "samples" if any(one.samples for one in self.steps) else "steps"

    @cached_property
    def times(self) -> Counter[float]:
        """Seconds of a step → steps of all ranks, over the whole run."""
        return times_of(self.steps)

    @cached_property
    def lives(self) -> tuple[tuple[Started, tuple[Steps, ...]], ...]:
        """Each start or generation with the lines of its steps."""
        ends = [one.at for one in self.starts[1:]] + [math.inf]
        return tuple(
            (one, tuple(line for line in self.steps if one.at <= line.at < end))
            for one, end in zip(self.starts, ends, strict=False)  # without a start there is one end
        )

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """What the time was spent on while ranks trained, in order."""
        found: list[Span] = []
        numbers: list[tuple[float, int]] = []
        for life, lines in self.lives:
            if not lines:
                continue
            own, before = [*_spans(life, lines)], _number_before(lines)
            if found:
                kept = life.kept_until if life.generation else _time_of(numbers, before)
                found = list(_divided(found, kept))
            found += own
            numbers += [(one.begin, before) for one in own[:1] if before >= 0]
            numbers += [(line.at, line.number) for line in lines if line.number]
        return tuple(found)

    @property
    def wall_clock(self) -> dict[str, float]:
        """What the wall clock was spent on: seconds by the words above, and ``unsure``."""
        spans = self.spans
        first, last = (spans[0].begin, spans[-1].end) if spans else (self.seconds, self.seconds)
        found = {"start": first, "steps": 0.0, "unsure": 0.0, "again": 0.0, "pause": 0.0, "between": 0.0}
        for one in spans:
            found[one.what] += one.seconds
        found["between"] = max(0.0, last - first - sum(one.seconds for one in spans))
        return found | {"end": max(0.0, self.seconds - last)}

    @property
    def goodput(self) -> tuple[float, float] | None:
        """The least and the most share of the wall clock in steps that count; equal where that is known."""
        parts, whole = self.wall_clock, self.seconds
        if not self.spans or whole <= 0:
            return None
        return parts["steps"] / whole, (parts["steps"] + parts["unsure"]) / whole

    def rate_of(self, lines: Iterable[Steps]) -> float:
        """Return samples per second over all ranks, or steps per second of the job, by the ranks' clocks."""
        sums = [one for _rank, one in sorted(sums_of(lines).items()) if one["seconds"] > 0]
        if self.unit == "samples":
            return sum(one["samples"] / one["seconds"] for one in sums)
        return sums[0]["timed"] / sums[0]["seconds"] if sums else 0.0

    @property
    def rate(self) -> float | None:
        """The rate over all lives, from the end of each one's first step; ``None``: nothing is known."""
        times = [
            max((one["seconds"] for one in sums_of(lines).values()), default=0.0) for _, lines in self.lives
        ]
        done = sum(self.rate_of(lines) * time for (_, lines), time in zip(self.lives, times, strict=True))
        return done / sum(times) if done else None

    @cached_property
    def batches(self) -> tuple[float, ...]:
        """The rate in each of up to ten stretches of each life."""
        found = []
        for _life, lines in self.lives:
            size = max(1, len(lines) // 10)
            found += [self.rate_of(lines[at : at + size]) for at in range(0, len(lines), size)]
        return tuple(rate for rate in found if rate > 0)

    def rates(self) -> Iterator[ComparableRate]:
        """Yield the rate, the step's time and goodput."""
        if self.batches:
            spread = replace(Spread.of_ratios(self.batches), interval=None)
            yield ComparableRate(name="rate", unit=f"{self.unit}/s", spread=spread)
        for part in (0.5, 0.99) if self.times else ():
            value = quantile(self.times, part)
            one = Spread(median=value, low=value, high=value, count=1)
            yield ComparableRate(name=f"step, p{100 * part:.0f}", unit="s", spread=one)
        if self.goodput is not None and self.goodput[0] > 0:
            low, high = self.goodput
            one = Spread(median=low, low=low, high=high, count=1)
            yield ComparableRate(name="goodput", unit="of the wall clock", spread=one)


def times_of(lines: Iterable[Steps]) -> Counter[float]:
    """Return seconds of a step → steps of all ranks; without classes, by what each rank's took on average."""
    found: Counter[float] = Counter()
    for line in lines:
        for place, count in line.times.items():
            if abs(place) < 1000:
                found[2 ** ((place + 0.5) / 32)] += count  # the middle of the class
        if not line.times:
            for steps, seconds in zip(line.timed or line.steps, line.seconds, strict=False):
                if steps > 0 and seconds > 0:
                    found[seconds / steps] += int(steps)
    return found


def sums_of(lines: Iterable[Steps]) -> dict[int, dict[str, float]]:
    """Return what each rank did in some lines: rank → column → sum."""
    found: dict[int, dict[str, float]] = {}
    for line in lines:
        for name in _COLUMNS:
            values = getattr(line, name) or (line.steps if name == "timed" else ())
            for rank, value in zip(line.ranks, values, strict=False):
                found.setdefault(rank, dict.fromkeys(_COLUMNS, 0.0))[name] += value
    return found


def quantile(times: Mapping[float, int], part: float) -> float:
    """Return the least value that this part of all is not above."""
    left = part * sum(times.values())
    for value in sorted(times):
        left -= times[value]
        if left <= 0:
            return value
    return 0.0


def _spans(life: Started, lines: tuple[Steps, ...]) -> Iterator[Span]:
    """Yield the steps of one life, by the rank that is furthest, and the pauses between them."""
    counts = [(line.at, max(line.steps, default=0.0)) for line in lines]
    known = (found.values() for line in lines if (found := sums_of([line])))
    sums = (max(some, key=lambda one: one["timed"]) for some in known)
    typical = [one["seconds"] / one["timed"] for one in sums if one["timed"] > 0 and one["seconds"] > 0]
    step = statistics.median(typical) if typical else 0.0
    begin = max(life.at, lines[0].at - step * counts[0][1])
    for at, steps in counts:
        if not steps:  # of waiting alone
            continue
        beyond = at - begin - step * steps
        if beyond > PAUSE_SECONDS and at - begin > 2 * step * steps:
            yield Span(begin=begin, end=begin + beyond, what="pause")
            begin += beyond
        yield Span(begin=begin, end=at, what="steps")
        begin = at


def _divided(spans: Iterable[Span], kept: float | None) -> Iterator[Span]:
    """Yield spans; steps behind ``kept`` are made again, those of which that is not known are unsure."""
    for one in spans:
        if one.what not in ("steps", "unsure"):
            yield one
        elif kept is None:
            yield replace(one, what="unsure")
        elif one.end <= kept:
            yield one
        elif one.begin >= kept:
            yield replace(one, what="again")
        else:
            yield replace(one, end=kept)
            yield replace(one, begin=kept, what="again")


def _number_before(lines: tuple[Steps, ...]) -> int:
    """Return the number of the step before a life's first, by its first line with one; below 0: unknown."""
    for count, line in enumerate(lines, 1):
        if line.number:
            sums = sums_of(lines[:count]).values()
            return line.number - int(max((one["steps"] for one in sums), default=0.0))
    return -1


def _time_of(numbers: list[tuple[float, int]], last: int) -> float | None:
    """Return when the step of a number had been made, between the lines that tell it; ``None``: unknown."""
    if last < 0 or not numbers:
        return None
    if last == 0 or last < numbers[0][1]:
        return 0.0 if last == 0 else numbers[0][0]
    for (begin, low), (end, high) in zip(reversed(numbers[:-1]), reversed(numbers[1:]), strict=True):
        if low <= last < high:
            return begin + (end - begin) * (last - low) / (high - low)
    return numbers[-1][0]


# --- from the lines of a record ---------------------------------------------------------------------------

_LINES: Mapping[str, Any] = {
    "started": Started,
    "steps": Steps,
    "event": Event,
    "sample": HostSample,
    "end": Ended,
}
_FIELDS = {"started": "starts", "steps": "steps", "event": "events", "sample": "samples"}


def run_of(
    text: str, name: str, *, is_running: bool = False, read: Callable[[str], Any] = json.loads
) -> JobRun | str:
    """Return the run of a record's text; or what is wrong with its first line.

    Lines that cannot be read are left out and counted among its faults. ``read``: JSON, ValueError otherwise.
    """
    lines = text.split("\n")
    is_cut = bool(lines.pop())  # a whole record ends with a line feed
    faults: list[str] = []
    found: dict[str, list[Any]] = {one: [] for one in _LINES}
    begun: Begun | None = None
    for number, line in enumerate(lines, 1):
        try:
            ((word, values),) = read(line).items()
        except (ValueError, AttributeError):
            word, values = "", None
        if number == 1:
            schema = values.get("schema") if word == "run" and isinstance(values, dict) else None
            if schema != JobRun.schema:
                what = f"schema {schema}" if isinstance(schema, int) else "no schema number"
                return f"has {what}; this version of Ringleader reads schema {JobRun.schema}"
            begun, wrong = decoded(Begun, values)
        elif word in _LINES:
            value, wrong = decoded(_LINES[word], values, word)
            found[word] += [] if value is None or wrong else [value]
        else:
            # A newer version may have other lines.
            wrong = [] if word else [("", "it is not a line of a record")]
        faults += [f"line {number}: {place + ': ' if place else ''}{what}" for place, what in wrong[:1]]
    if begun is None:
        return "; ".join(faults) or "is empty"
    if len(faults) > MOST_FAULTS:
        faults = [*faults[:MOST_FAULTS], f"{len(faults) - MOST_FAULTS} more lines cannot be read"]
    if is_cut and not is_running:
        faults.append(f"line {len(lines) + 1}: it is cut: its writer was killed, or the disk was full")
    ended = next(iter(found["end"]), None)
    columns: Mapping[str, Any] = {field: tuple(found[word]) for word, field in _FIELDS.items()}
    return JobRun(
        name=name,
        context=begun.context if ended is None else ended.context,
        again=begun.again,
        ended=ended,
        is_running=is_running and ended is None,
        faults=tuple(faults),
        **columns,
    )
