"""A recorded run of a job: sentences, tables, and its numbers as series over time. `job_plots` draws them.

`exports` writes the series for other programs. Of the history of an elastic job without a record: `elastic`.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.checks.between_hosts import compare_hosts
from ringleader.fabric.rate_text import byte_rate
from ringleader.measurements.job import JobRun, quantile, times_of
from ringleader.report.elastic import events_table
from ringleader.report.number_format import NONE, percent, plural, seconds, thousands
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

PARTS = {
    "start": ("start", "until the first step begins"),
    "steps": ("steps that count", "goodput"),
    "unsure": (
        "steps that may be lost",
        "of earlier starts: no step numbers, so what was made again is unknown",
    ),
    "again": ("steps that were lost", "made again, as no checkpoint or commit had them"),
    "pause": ("pauses", "beside the steps: evaluation, checkpoints, hangs"),
    "between": ("without training", "from a failure or a change of hosts to the next step"),
    "end": ("end", "after the last step"),
}
"""Words of `measurements.job` → name of a part of the wall clock, what it is."""
UNKNOWN_STEPS = (
    "After a restart it is unknown which steps were made again: call ringleader.progress(samples=…, step=N), "
    "N counted on from the checkpoint, and goodput is exact."
)


@dataclass(frozen=True, kw_only=True)
class Series:
    """A number over time."""

    name: str
    """``ringleader_rate``: as Prometheus has it, with its unit at the end."""
    about: str
    labels: tuple[tuple[str, str], ...] = ()
    points: tuple[tuple[float, float], ...]
    """(seconds since the launch, value)."""


def series(run: JobRun, width: float = 0.0) -> Iterator[Series]:
    """Yield all series of a run; ``width``: seconds that are taken together, 0: as they were recorded."""
    quantiles: dict[str, list[tuple[float, float]]] = defaultdict(list)
    ranks: dict[tuple[str, int, str], list[tuple[float, float]]] = defaultdict(list)
    for life, lines in run.lives:
        before = lines[0].at if lines else 0.0
        for at, some in _together(lines[1:], width):
            if at > before:
                quantiles["rate"].append((at, run.rate_of(some, at - before)))
            before = at
            if times := times_of(some):
                for part in ("0.5", "0.99"):
                    quantiles[part].append((at, quantile(times, float(part))))
            for name, rank, value in _of_ranks(some):
                ranks[name, rank, life.hosts[rank] if rank < len(life.hosts) else ""].append((at, value))
    about = f"{run.unit} per second of the job"
    yield Series(name="ringleader_rate", about=about, points=tuple(quantiles.pop("rate", ())))
    for part, points in sorted(quantiles.items()):
        about, labels = "time of a step, over all ranks", (("quantile", part),)
        yield Series(name="ringleader_step_seconds", about=about, labels=labels, points=tuple(points))
    abouts = {"rank_step_seconds": "mean time of a step", "rank_waiting_ratio": "part of a step in waiting"}
    for (name, rank, host), points in sorted(ranks.items()):
        labels = (("rank", str(rank)), ("host", host))
        yield Series(name=f"ringleader_{name}", about=abouts[name], labels=labels, points=tuple(points))
    yield from _of_hosts(run, width)
    if run.goodput is not None:
        about = "least share of the wall clock in steps that count"
        yield Series(name="ringleader_goodput_ratio", about=about, points=((run.seconds, run.goodput[0]),))


def _together(lines: Iterable[Any], width: float) -> Iterator[tuple[float, list[Any]]]:
    """Yield lines of the same stretch of time, with the time of the last one."""
    for _place, found in groupby(lines, key=lambda one: int(one.at // width) if width else one.at):
        some = list(found)
        yield some[-1].at, some


def _of_ranks(lines: Sequence[Any]) -> Iterator[tuple[str, int, float]]:
    """Yield (name, rank, value): the mean step of each rank, and which part of it was waiting."""
    sums: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line in lines:
        for name in ("steps", "seconds", "spent", "waiting"):
            for rank, value in zip(line.ranks, getattr(line, name), strict=False):
                sums[rank][name] += value
    for rank, found in sums.items():
        if found["seconds"] > 0 and found["steps"] > 0:
            yield "rank_step_seconds", rank, found["seconds"] / found["steps"]
        if found["spent"] > 0:
            yield "rank_waiting_ratio", rank, min(1.0, found["waiting"] / found["spent"])


def _of_hosts(run: JobRun, width: float) -> Iterator[Series]:
    """Yield what interfaces and ports carried, and what GPUs reported."""
    for host in dict.fromkeys(one.host for one in run.samples):
        ours = [one for one in run.samples if one.host == host and not one.fault]
        lasts = [some[-1] for _at, some in _together(ours, width)]
        for kind, of in (("interface", "interfaces"), ("port", "ports")):
            for name in dict.fromkeys(name for one in ours for name in getattr(one, of)):
                known = [
                    (one.at, getattr(one, of)[name])
                    for one in lasts
                    if len(getattr(one, of).get(name, ())) == 2
                ]
                for place, way in enumerate(("received", "sent")):
                    yield Series(
                        name=f"ringleader_{kind}_{way}_bytes_per_second",
                        about=f"bytes {way} by an {kind}"
                        if kind == "interface"
                        else f"bytes {way} by a port",
                        labels=(("host", host), (kind, name)),
                        points=tuple(_growth([(at, both[place]) for at, both in known])),
                    )
        for gpu in dict.fromkeys(name for one in ours for name in one.gpus):
            for field, name, about in GPU_NUMBERS:
                known = [(one.at, getattr(one.gpus[gpu], field)) for one in lasts if gpu in one.gpus]
                points = tuple((at, float(value)) for at, value in known if value is not None)
                if points:
                    labels = (("host", host), ("gpu", gpu))
                    yield Series(name=f"ringleader_gpu_{name}", about=about, labels=labels, points=points)


GPU_NUMBERS = (
    ("utilization", "utilization_ratio", "part of the time in which a kernel ran"),
    ("watts", "power_watts", "power of a GPU"),
    ("hertz", "clock_hertz", "clock of a GPU's multiprocessors"),
    ("memory", "memory_bytes", "memory of a GPU in use"),
)


def _growth(points: Sequence[tuple[float, int]]) -> Iterator[tuple[float, float]]:
    """Yield the growth of a counter per second; one that shrinks was reset, and says nothing."""
    for (before, low), (at, high) in pairwise(points):
        if high >= low and at > before:
            yield at, (high - low) / (at - before)


def document(run: JobRun) -> dict[str, Any]:
    """Return the run and what it gives, as JSON values."""
    found = {
        "rate": run.rate,
        "unit": f"{run.unit}/s",
        "step_seconds": {part: quantile(run.times, float(part)) for part in ("0.5", "0.99") if run.times},
        "goodput": None if run.goodput is None else {"least": run.goodput[0], "most": run.goodput[1]},
        "wall_clock": run.wall_clock,
    }
    return {**run_document(run, summary(run), [found]), "failure": run.failure}


def summary(run: JobRun) -> Summary:
    """Put a run into words and tables."""
    title = "Where the wall clock went"
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
    return Summary(
        name=run.name,
        kind="Run",
        headline=_headline(run),
        date=day(run.context.date),
        tiles=tuple(_tiles(run)),
        cautions=tuple(_cautions(run)),
        tables=(clock, _ranks(run), *_devices(run), events_table(run.events)),
        evidence=(*transport_tables([("", run.ended.proof if run.ended else None)]), *_differences(run)),
        facts=facts(run.context, after=((AGAIN, shlex.join(run.again)),)),
    )


def _headline(run: JobRun) -> str:
    who = f"{shlex.join(run.context.command)[:80]} on {plural(run.ranks, 'rank')}"
    text = (
        f"{who}: no step was reported" if run.rate is None else f"{who}: {thousands(run.rate)} {run.unit}/s"
    )
    if run.times:
        middle, slow = (seconds(quantile(run.times, part)) for part in (0.5, 0.99))
        text += f", {middle} a step (p99 {slow})"
    if run.goodput is not None:
        text += f"; goodput {_goodput(run)}"
    if run.is_running:
        return f"{text}; it runs, for {seconds(run.seconds)} now."
    if run.ended is None:
        return f"{text}; its record stops after {seconds(run.seconds)}, as its launcher was killed."
    how = "ended well" if not run.ended.exit_code else f"failed with exit code {run.ended.exit_code}"
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
    if run.goodput is not None and run.goodput[0] < run.goodput[1]:
        yield UNKNOWN_STEPS
    for one in {one.host: one for one in run.samples if one.fault}.values():
        yield f"{one.host}: a sample at {one.at:.1f} s could not be used: {one.fault}."
    yield from (f"Record: {text}." for text in run.faults)


def _ranks(run: JobRun) -> Table:
    """Return what each rank did: of a number that several processes had, of all of them."""
    sums: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line in run.steps:
        for name in ("steps", "seconds", "spent", "exchange", "waiting"):
            for rank, value in zip(line.ranks, getattr(line, name), strict=False):
                sums[rank][name] += value
    hosts = {rank: host for one in run.starts for rank, host in enumerate(one.hosts)}

    def step(one: tuple[int, dict[str, float]]) -> str:
        # The first step of a process has no time, and one beyond the first line is no matter.
        return seconds(one[1]["seconds"] / one[1]["steps"]) if one[1]["seconds"] > 0 else NONE

    def part(name: str) -> Any:
        return lambda one: percent(one[1][name] / one[1]["spent"]) if one[1]["spent"] > 0 else NONE

    return table_of(
        "ranks",
        "Ranks",
        sorted(sums.items()),
        (
            ("rank", lambda one: str(one[0])),
            ("host", lambda one: hosts.get(one[0], NONE)),
            ("steps", lambda one: f"{one[1]['steps']:,.0f}"),
            ("a step", step),
            ("exchange", part("exchange")),
            ("waiting", part("waiting")),
        ),
        note="Steps of all processes that had the rank. Exchange and waiting are parts of a step.",
        keep=3,
    )


def _devices(run: JobRun) -> Iterator[Table]:
    """Yield the tables of what carried bytes, and of GPUs."""
    found: dict[tuple[str, str], dict[str, Series]] = defaultdict(dict)
    gpus: dict[tuple[str, str], dict[str, Series]] = defaultdict(dict)
    for one in _of_hosts(run, 0.0):
        (_, host), (kind, device) = one.labels
        name = one.name.removeprefix("ringleader_").removeprefix(f"{kind}_")
        (gpus if kind == "gpu" else found)[host, device][name] = one

    counts: dict[tuple[str, str], list[tuple[int, ...]]] = defaultdict(list)
    for sample in run.samples:
        for device, both in (*sample.interfaces.items(), *sample.ports.items()):
            counts[sample.host, device] += [both] if len(both) == 2 else []

    def total(name: tuple[str, str], place: int) -> str:
        return byte_size(sum(max(0, b[place] - a[place]) for a, b in pairwise(counts[name])))

    def most(both: dict[str, Series], way: str) -> float:
        return max((value for _at, value in both[f"{way}_bytes_per_second"].points), default=0.0)

    yield table_of(
        "devices",
        "Interfaces and ports",
        [one for one in found.items() if any(most(one[1], way) for way in ("received", "sent"))],
        (
            ("host", lambda one: one[0][0]),
            ("device", lambda one: one[0][1]),
            ("received", lambda one: total(one[0], 0)),
            ("sent", lambda one: total(one[0], 1)),
            ("most received", lambda one: byte_rate(most(one[1], "received"))),
            ("most sent", lambda one: byte_rate(most(one[1], "sent"))),
        ),
        note="Of all programs on the host, from the second sample on. Rates are means between two samples.",
    )

    def mean(name: str, scale: float, form: str) -> Any:
        def cell(one: tuple[tuple[str, str], dict[str, Series]]) -> str:
            if (known := one[1].get(name)) is None:
                return NONE
            return form.format(scale * sum(value for _at, value in known.points) / len(known.points))

        return cell

    yield table_of(
        "gpus",
        "GPUs",
        gpus.items(),
        (
            ("host", lambda one: one[0][0]),
            ("GPU", lambda one: one[0][1]),
            ("utilization", mean("utilization_ratio", 100, "{:.0f}%")),
            ("power", mean("power_watts", 1, "{:.0f} W")),
            ("clock", mean("clock_hertz", 1e-6, "{:.0f} MHz")),
            ("memory", mean("memory_bytes", 2**-30, "{:.1f} GiB")),
        ),
        note="Means over the run.",
    )


def _differences(run: JobRun) -> Iterator[Table]:
    """Yield what `ringleader doctor` finds different between the hosts, where their devices were read."""
    known = {host.name: host.devices for host in run.context.hosts if host.devices is not None}
    found = [one for one in compare_hosts(known) if one.is_bad]
    rows = tuple((one.name, ", ".join(one.hosts), one.seen, one.remedy or NONE) for one in found)
    names = ("check", "hosts", "what differs", "remedy")
    yield Table(key="hosts", title="Differences between hosts", names=names, rows=rows, is_prose=True)
