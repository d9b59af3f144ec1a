"""A recorded run of a job: sentences, tables, and its numbers as series over time. `job_plots` draws them.

`exports` writes the series for other programs.
"""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from ringleader.dataclass_json import document as document_of
from ringleader.fabric.checks.between_hosts import compare_hosts
from ringleader.fabric.rate_text import byte_rate
from ringleader.launch.elastic_history import Event
from ringleader.launch.job_record import HostSample
from ringleader.measurements.recorded_job import JobRun, quantile, sums_of, times_of
from ringleader.number_format import NONE, percent, plural, seconds, thousands
from ringleader.report.summary import (
    AGAIN,
    Summary,
    Table,
    day,
    facts,
    run_document,
    table_of,
    transport_tables,
)
from ringleader.report.trace_tables import sentences, tables

PARTS = {
    "start": ("start", "until the first step begins"),
    "steps": ("steps that count", "goodput"),
    "unsure": (
        "steps that may be lost",
        "of earlier starts: no step numbers, so what was made again is unknown",
    ),
    "again": ("steps that were lost", "repeated, because no checkpoint or commit included them"),
    "pause": ("pauses", "beside the steps: evaluation, checkpoints, hangs"),
    "between": ("without training", "from a failure or a change of hosts to the next step"),
    "end": ("end", "after the last step"),
}
"""Words of `measurements.recorded_job` → name of a part of the wall clock, what it is."""
MOST_FAULTS = 3
"""Faults of hosts that are shown above the tables, which have all."""
UNKNOWN_STEPS = (
    "After a restart it is unknown which steps were made again: call ringleader.progress(samples=…, step=N), "
    "N counted on from the checkpoint, and goodput is exact."
)


class Number(NamedTuple):
    """What the series of one name are about."""

    about: str
    unit: str
    """As UCUM has it; of a rate it is what the job counts."""
    text: Callable[[float], str]
    what: str = ""
    """In a table of devices."""


NUMBERS: Mapping[str, Number] = {
    "rate": Number("samples or steps per second of the job", "", thousands),
    "step_seconds": Number("time of a step, over all ranks", "s", seconds),
    "rank_step_seconds": Number("mean time of a rank's step", "s", seconds),
    "rank_exchange_ratio": Number("part of a rank's step in exchange", "1", percent),
    "rank_waiting_ratio": Number("part of a rank's step in waiting", "1", percent),
    "received_bytes_per_second": Number("received by an interface or a port", "By/s", byte_rate, "received"),
    "sent_bytes_per_second": Number("sent by an interface or a port", "By/s", byte_rate, "sent"),
    "gpu_utilization_ratio": Number("GPU utilization", "1", percent, "gpu utilization"),
    "gpu_power_watts": Number("GPU power", "W", lambda value: f"{value:.0f} W", "gpu power"),
    "gpu_clock_hertz": Number("GPU clock", "Hz", lambda value: f"{value / 1e6:.0f} MHz", "gpu clock"),
    "gpu_memory_bytes": Number(
        "GPU memory in use", "By", lambda value: f"{value / 2**30:.1f} GiB", "gpu memory"
    ),
    "goodput_ratio": Number("least share of the wall clock in steps that count", "1", percent),
}
"""Name of series, with its unit at the end as Prometheus has it → what they are about."""
_OF_GPU = {
    "gpu_utilization_ratio": "utilization",
    "gpu_power_watts": "watts",
    "gpu_clock_hertz": "hertz",
    "gpu_memory_bytes": "memory",
}


@dataclass(frozen=True, kw_only=True)
class Series:
    """A number over time."""

    name: str
    """One of NUMBERS."""
    labels: Mapping[str, str]
    """``{"host": "h1", "device": "mlx5_0/1"}``."""
    points: tuple[tuple[float, float], ...]
    """(seconds since the launch, value), at least one."""

    @property
    def mean(self) -> float:
        """Mean of its values."""
        return sum(value for _at, value in self.points) / len(self.points)


def series(run: JobRun, width: float = 0.0) -> list[Series]:
    """Return all series of a run; ``width``: seconds that are taken together, 0: as they were recorded."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]] = defaultdict(list)
    for name, at, value, labels in (*_of_steps(run, width), *_of_hosts(run, width)):
        if math.isfinite(value):  # a file of somebody else's may divide by next to nothing
            found[name, tuple(labels.items())].append((at, value))
    if run.goodput is not None:
        found["goodput_ratio", ()].append((run.seconds, run.goodput[0]))
    order = sorted(found, key=lambda key: [*NUMBERS].index(key[0]))
    return [
        Series(name=name, labels=dict(labels), points=tuple(found[name, labels])) for name, labels in order
    ]


_Value = tuple[str, float, float, dict[str, str]]
"""Name, time, value, labels."""


def _together(lines: Iterable[Any], width: float) -> Iterator[list[Any]]:
    """Yield lines of the same stretch of time."""
    for _place, found in groupby(lines, key=lambda one: int(one.at // width) if width else one.at):
        yield list(found)


def _of_steps(run: JobRun, width: float) -> Iterator[_Value]:
    for life, lines in run.lives:
        for some in _together(lines, width):
            at, times = some[-1].at, times_of(some)
            if rate := run.rate_of(some):
                yield "rate", at, rate, {}
            for part in ("0.5", "0.99") if times else ():
                yield "step_seconds", at, quantile(times, float(part)), {"quantile": part}
            for rank, sums in sums_of(some).items():
                labels = {"rank": str(rank), "host": life.hosts[rank] if rank < len(life.hosts) else ""}
                if sums["seconds"] > 0 and sums["timed"] > 0:
                    yield "rank_step_seconds", at, sums["seconds"] / sums["timed"], labels
                if sums["spent"] > 0 and sums["exchange"] > 0:  # PyTorch's flight recorder knows none
                    yield "rank_exchange_ratio", at, min(1.0, sums["exchange"] / sums["spent"]), labels
                if sums["spent"] > 0:
                    yield "rank_waiting_ratio", at, min(1.0, sums["waiting"] / sums["spent"]), labels


def _of_hosts(run: JobRun, width: float) -> Iterator[_Value]:
    """Yield what interfaces and ports carried from sample to sample, and what GPUs reported."""
    before: dict[tuple[str, str], tuple[float, tuple[int, ...]]] = {}
    of_host: dict[str, list[HostSample]] = defaultdict(list)
    for one in run.samples:
        of_host[one.host].append(one)
    for host, ours in of_host.items():
        for one in (some[-1] for some in _together(ours, width)):
            for device, counts in (*one.interfaces.items(), *one.ports.items()):
                at, old = before.get((host, device), (one.at, counts))
                before[host, device] = (one.at, counts)
                # A counter that shrinks was reset, and says nothing.
                if (
                    one.at > at
                    and len(counts) == len(old) == 2
                    and counts[0] >= old[0]
                    and counts[1] >= old[1]
                ):
                    for place, way in enumerate(("received", "sent")):
                        rate = (counts[place] - old[place]) / (one.at - at)
                        yield f"{way}_bytes_per_second", one.at, rate, {"host": host, "device": device}
            for index, gpu in one.gpus.items():
                for name, field in _OF_GPU.items():
                    if (value := getattr(gpu, field)) is not None:
                        yield name, one.at, float(value), {"host": host, "gpu": index}


def document(run: JobRun) -> dict[str, Any]:
    """Return the run and what it gives, as JSON values."""
    found = {
        "rate": run.rate,
        "unit": f"{run.unit}/s",
        "step_seconds": {part: quantile(run.times, float(part)) for part in ("0.5", "0.99") if run.times},
        "goodput": None if run.goodput is None else {"least": run.goodput[0], "most": run.goodput[1]},
        "wall_clock": run.wall_clock,
        "resets": [document_of(event) for event in _resets(run.events)],
    }
    return {**run_document(run, summary(run), [found]), "failure": run.failure}


def summary(run: JobRun) -> Summary:
    """Put a run into words and tables."""
    title, found = "Where the wall clock went", series(run)
    parts = [(PARTS[name], value) for name, value in run.wall_clock.items() if value > 0]
    clock = table_of(
        "clock",
        title,
        parts if run.spans else [],
        (
            ("part", lambda one: one[0][0]),
            ("time", lambda one: seconds(one[1])),
            ("share", lambda one: f"{100 * one[1] / run.seconds:.1f}%"),
            ("what it is", lambda one: one[0][1]),
        ),
        note=f"Of {seconds(run.seconds)} from the launch to the end. The parts add up to it.",
        is_prose=True,
    )
    split = None if run.ended is None else run.ended.split
    profile = () if split is None else tables(split)
    return Summary(
        name=run.name,
        kind="Run",
        headline=_headline(run),
        date=day(run.context.date),
        tiles=tuple(_tiles(run)),
        cautions=tuple(_cautions(run)),
        tables=(clock, *profile, _ranks(found), _hosts(found), _events(run.events)),
        findings=() if split is None else tuple(sentences(split)),
        evidence=(*transport_tables([("", run.ended.proof if run.ended else None)]), *_differences(run)),
        facts=facts(run.context, after=((AGAIN, shlex.join(run.again)),)),
    )


def _headline(run: JobRun) -> str:
    who = f"{shlex.join(run.context.command)[:80]} on {plural(run.ranks, 'rank')}"
    rate = "no step was reported" if run.rate is None else f"{thousands(run.rate)} {run.unit}/s"
    text = f"{who}: {rate}"
    if run.times:
        middle, slow = (seconds(quantile(run.times, part)) for part in (0.5, 0.99))
        text += f", {middle} a step (p99 {slow})"
    if run.goodput is not None:
        text += f"; goodput {_goodput(run)}"
    if again := _resets(run.events):
        lost = seconds(sum(event.seconds for event in again))
        often = "once" if len(again) == 1 else f"{len(again)} times"
        text += f"; it continued with different ranks {often}, losing {lost} of training time"
    if run.is_running:
        return f"{text}; running for {seconds(run.seconds)}."
    if run.ended is None:
        return f"{text}; the record stops after {seconds(run.seconds)}: the launcher was killed."
    how = "succeeded" if not run.ended.exit_code else f"failed with exit code {run.ended.exit_code}"
    return f"{text}; it {how} after {seconds(run.seconds)}."


def _goodput(run: JobRun) -> str:
    assert run.goodput is not None
    low, high = (f"{100 * one:.1f}%" for one in run.goodput)
    return low if low == high else f"{low.removesuffix('%')} to {high}"


def _tiles(run: JobRun) -> Iterator[tuple[str, str]]:
    if run.rate is not None:
        yield thousands(run.rate), f"{run.unit}/s on {plural(run.ranks, 'rank')}"
    if run.times:
        yield seconds(quantile(run.times, 0.5)), "for a step (median)"
        yield seconds(quantile(run.times, 0.99)), "for a step (p99)"
    if run.goodput is not None:
        yield _goodput(run), "goodput: wall clock in steps that count"


def _cautions(run: JobRun) -> Iterator[str]:
    if run.failure:
        yield f"The job failed: {run.failure}."
    for kind, what in (("hang", "Ranks waited for each other"), ("slow_rank", "A rank was slow")):
        found = [one for one in run.events if one.kind == kind]
        if found:
            yield f"{what}: {found[-1].why}."
    for fault in [one for one in run.events if one.kind == "host_fault"][:MOST_FAULTS]:
        yield f"{fault.who}, {fault.at:.1f} s: {fault.why}."
    if run.goodput is not None and run.goodput[0] < run.goodput[1]:
        yield UNKNOWN_STEPS
    for one in {one.host: one for one in run.samples if one.fault}.values():
        yield f"{one.host}: a sample at {one.at:.1f} s could not be used: {one.fault}."
    if run.ended is not None and run.ended.split is not None:
        yield from (f"Profile: {text}." for text in run.ended.split.notes)
    yield from (f"Record: {text}." for text in run.faults)


def _ranks(found: Sequence[Series]) -> Table:
    """Return how each rank spent its steps."""
    rows: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for one in found:
        if "rank" in one.labels:
            rows[one.labels["rank"], one.labels["host"]][one.name] = NUMBERS[one.name].text(one.mean)
    columns = {"a step": "step_seconds", "exchange": "exchange_ratio", "waiting": "waiting_ratio"}
    cells = [(name, _cell(f"rank_{key}")) for name, key in columns.items()]
    return table_of(
        "ranks",
        "Ranks",
        sorted(rows.items(), key=lambda one: int(one[0][0])),
        (("rank", lambda one: one[0][0]), ("host", lambda one: one[0][1]), *cells),
        note="Means over the run. Exchange and waiting are parts of a step.",
    )


def _cell(key: str) -> Callable[[tuple[Any, dict[str, str]]], str]:
    return lambda one: one[1].get(key, NONE)


def _hosts(found: Sequence[Series]) -> Table:
    """Return what devices of hosts carried, and what GPUs did."""
    return table_of(
        "devices",
        "Interfaces, ports and GPUs",
        [one for one in found if {"device", "gpu"} & one.labels.keys() and any(v for _, v in one.points)],
        (
            ("host", lambda one: one.labels["host"]),
            ("device", lambda one: one.labels.get("device") or f"GPU {one.labels['gpu']}"),
            ("what", lambda one: NUMBERS[one.name].what),
            ("mean", lambda one: NUMBERS[one.name].text(one.mean)),
            ("most", lambda one: NUMBERS[one.name].text(max(value for _at, value in one.points))),
        ),
        note="Interfaces and ports count the bytes of all programs on their host.",
    )


def _resets(events: Sequence[Event]) -> list[Event]:
    """Return the events by which ranks continued in another generation."""
    return [event for event in events if event.kind == "generation" and event.generation > 1]


def _events(events: Sequence[Event]) -> Table:
    """Return the events of a job, elastic or not."""

    again = _resets(events)
    return table_of(
        "events",
        "What happened",
        events,
        (
            ("at", lambda event: f"{event.at:.2f} s"),
            (
                "what",
                lambda event: (
                    f"generation {event.generation}, {plural(event.size, 'rank')}"
                    if event.kind == "generation"
                    else event.kind.replace("_", " ")
                ),
            ),
            ("who", lambda event: event.who),
            ("why", lambda event: event.why or NONE),
            ("without training", lambda event: seconds(event.seconds) if event in again else NONE),
            ("from commit", lambda event: str(event.commit or "the beginning") if event in again else NONE),
        ),
        note="Seconds from the launch. Steps since the commit were made again.",
        keep=4,
        is_prose=True,
    )


def _differences(run: JobRun) -> Iterator[Table]:
    """Yield what `ringleader doctor` finds different between the hosts, where their devices were read."""
    known = {host.name: host.devices for host in run.context.hosts if host.devices is not None}
    found = [one for one in compare_hosts(known) if one.is_bad]
    rows = tuple((one.name, ", ".join(one.hosts), one.seen, one.remedy or NONE) for one in found)
    names = ("check", "hosts", "what differs", "remedy")
    yield Table(key="hosts", title="Differences between hosts", names=names, rows=rows, is_prose=True)
