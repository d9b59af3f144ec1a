"""A scaling run, in sentences and tables, as a page shows it. Pure."""

from __future__ import annotations

import shlex

from ringleader.metrics import Spread
from ringleader.report import table, transport
from ringleader.report.baseline import ONE, baseline_text, ideal_text, kind_text
from ringleader.report.context_facts import day
from ringleader.report.explain import explain, largest
from ringleader.report.number_format import percent, plural, times
from ringleader.report.run_summary import RunSummary, Table
from ringleader.scaling import Run, Scaling, scalings


def summary(run: Run) -> RunSummary:
    """Put a run into words and tables."""
    said = explain(run)
    names, rows = table.cells(run)
    wires = tuple(transport.rows(run))
    numbers = Table(key="numbers", title="The numbers", names=names, rows=tuple(rows), note=_how_to_read(run))
    evidence = Table(
        key="transport",
        title="Transport",
        names=transport.HEADER,
        rows=wires,
        note=transport.HOW_TO_READ,
        is_prose=True,
    )
    return RunSummary(
        name=run.name,
        kind="Scaling report",
        headline=said.headline,
        date=day(run.context.date),
        tiles=tuple(tiles(run, scalings(run))),
        cautions=said.cautions,
        tables=(numbers,) if rows else (),
        findings=said.limits,
        evidence=(evidence,) if wires else (),
        facts=(("Measure it again", shlex.join(command_line(run))), *table.facts(run)),
        details=tuple(_samples(run)),
    )


def _how_to_read(run: Run) -> str:
    """Return what the columns mean in this run."""
    return (
        "Medians over the repetitions; in brackets 95 % intervals of the mean. Ratios are taken repetition "
        f"by repetition, so that what drifts slowly cancels out: speed-up against {baseline_text(run)}, "
        f"efficiency {ideal_text(run)}, against uncoupled X(N)/U(N), where U are as many ranks that run the "
        f"same script with the same binding and exchange nothing{_in_step(run)}. "
        f"Scaling is {kind_text(run)}."
    )


def _in_step(run: Run) -> str:
    """Return what ranks in step are, where they were measured."""
    if not any(point.in_step for point in run.points):
        return ""
    return "; ranks in step exchange nothing either, but meet where they would"


def command_line(run: Run) -> tuple[str, ...]:
    """Return the ``ringleader scale`` that makes such a run, as far as the run tells it."""
    words = ["ringleader", "scale"]
    if run.request is not None:
        return (*words, *run.request.options, "--", *run.context.command)
    words += ["--grid", ",".join(point.name for point in run.points), "--repeats", str(run.repeats)]
    names = [host.name for host in run.context.hosts]
    if run.context.lab:
        words.append("--lab")
    elif names and names != ["localhost"]:
        slots = max((point.slots for point in run.points), default=1)
        words += ["-H", ",".join(f"{name}:{slots}" for name in names)]
    return (*words, "--", *run.context.command)


def tiles(run: Run, results: tuple[Scaling, ...]) -> list[tuple[str, str]]:
    """Return the numbers to be seen first: (number, what it is)."""
    if not results:
        return []
    top = largest(results)
    found = []
    if top.ranks > 1 and top.speedup is not None and top.efficiency is not None:
        found = [
            (
                times(top.speedup.median),
                f"{'as fast as' if run.strong else 'the work of'} {baseline_text(run)}, "
                f"on {plural(top.ranks, 'rank')}",
            ),
            (
                percent(top.efficiency.median),
                f"efficiency: {_against_ideal(run, top.ranks)}{_extent(top.efficiency)}",
            ),
        ]
    if top.against_uncoupled is not None:
        found.append(against_tile(top.ranks, top.against_uncoupled))
    return found


def _against_ideal(run: Run, ranks: int) -> str:
    if run.baseline == ONE:
        return f"{ranks} ranks against {ranks} times one"
    return f"{ranks} ranks against {baseline_text(run)}, in proportion"


def against_tile(ranks: int, against: Spread) -> tuple[str, str]:
    """Return the tile of the ratio to uncoupled ranks: one number only where the repetitions show one."""
    what = f"of what {ranks} uncoupled ranks do"
    if against.count < 2:
        return percent(against.median), f"{what}, measured once"
    if against.clear_of(1.0):
        return percent(against.median), what + _extent(against)
    low, high = percent(against.low).removesuffix(" %"), percent(against.high)
    return f"{low}–{high}", f"{what}: the repetitions vary too much for one number"


def _extent(spread: Spread) -> str:
    """Return how far the repetitions reach, where they differ."""
    low, high = percent(spread.low), percent(spread.high)
    return "" if low == high else f" ({low} to {high})".replace(" to ", "\u00a0to\u00a0")


def _samples(run: Run) -> list[Table]:
    """Return every repetition's rate."""
    rows = tuple(
        (f"{point.hosts}×{point.slots}", kind, "  ".join(f"{sample.rate:,.1f}" for sample in samples))
        for point in run.points
        for kind, samples in point.kinds
        if samples
    )
    title = f"Every repetition, {run.unit}/s"
    names = ("hosts×slots", "ranks are", "in order")
    return [Table(key="samples", title=title, names=names, rows=rows)] if rows else []
