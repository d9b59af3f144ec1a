"""A scaling run as tables and JSON; `scaling_sentences` has the words, `scaling_plots` the drawings. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ringleader.confidence_interval import CONFIDENCE, Interval
from ringleader.dataclass_json import document as json_values
from ringleader.fabric.transport_proof.proof import lines as proof_lines
from ringleader.metrics import Spread
from ringleader.number_format import percent, plural, seconds, shown, span, thousands, times
from ringleader.report.scaling_sentences import (
    ONE,
    baseline_text,
    cautions,
    headline,
    ideal_text,
    kind_text,
    largest,
    limits,
)
from ringleader.report.summary import AGAIN, Summary, Table, day, facts, table_of, transport_tables
from ringleader.scaling import NARROW, Run, Scaling, scalings, too_wide

INTERVALS = "95% confidence, Student's t on the logarithms of the repetitions"


def summary(run: Run) -> Summary:
    """Put a run into words and tables."""
    results = scalings(run)
    warmups = {"images": "by the script itself", "batches": "the first epoch, where there are several"}
    warmup = f"the first {percent(run.warmup)} of the time in which all ranks trained"
    has_intervals = any(result.rate.interval for result in results)
    return Summary(
        name=run.name,
        kind="Scaling report",
        headline=headline(run),
        date=day(run.context.date),
        tiles=tuple(_tiles(run, largest(results))) if results else (),
        cautions=tuple(cautions(run)),
        tables=(_numbers(run, results),),
        findings=tuple(limits(run)),
        evidence=transport_tables((_named(point), point.transport) for point in run.points),
        lines=(
            f"Scaling: {kind_text(run)}; baseline: {baseline_text(run)}"
            + ("; in brackets: 95% intervals" if has_intervals else ""),
            *([f"Repetitions: {repetitions(run)}"] if run.budget is not None else []),
            *([f"Transport: {run.context.transport}"] if run.context.transport else []),
            *transport_lines(run),
        ),
        facts=(
            (AGAIN, shlex.join(command_line(run))),
            *facts(
                run.context,
                ("Grid", ",".join(point.name for point in run.points)),
                ("Scaling", kind_text(run)),
                ("Baseline", f"{baseline_text(run)}: efficiency is {ideal_text(run)}"),
                ("Intervals", INTERVALS if has_intervals else ""),
                ("Repetitions", f"{repetitions(run)}, sizes taken in turn, every second time backwards"),
                ("Warm-up left out", warmups.get(run.unit, warmup)),
                after=[("Resumed", ", ".join(map(day, run.resumed)))],
            ),
        ),
        details=_samples(run),
    )


def document(run: Run) -> dict[str, Any]:
    """Return the run's results as plain JSON values: rates per second, times in seconds, ratios as such."""
    return {
        "schema": run.schema,
        "name": run.name,
        "unit": run.unit,
        "headline": headline(run),
        "limits": limits(run),
        "cautions": cautions(run),
        "failure": run.failure,
        "repeats": run.repeats,
        "warmup": run.warmup,
        "scaling": "strong" if run.strong else "weak",
        "global_batch": run.global_batch,
        "baseline": run.baseline,
        "efficiency": ideal_text(run),
        "confidence": CONFIDENCE,
        "context": asdict(run.context),
        "results": [asdict(result) for result in scalings(run)],
        "transport": [
            {"hosts": point.hosts, "slots": point.slots, "proof": json_values(point.transport)}
            for point in run.points
            if point.transport is not None
        ],
    }


def _named(size: Any) -> str:
    return f"{size.hosts}×{size.slots}"


def _numbers(run: Run, results: tuple[Scaling, ...]) -> Table:
    in_step = "; barrier-only ranks exchange nothing either, but meet where they would"
    return table_of(
        "numbers",
        "The numbers",
        results,
        (
            ("hosts×slots", _named),
            ("ranks", lambda one: str(one.ranks)),
            (f"{run.unit}/s", lambda one: thousands(one.rate.median)),
            (
                "95% interval",
                lambda one: shown(
                    one.rate.interval, lambda between: span(between.low, between.high, thousands)
                ),
            ),
            ("speed-up", lambda one: shown(one.speedup, lambda spread: _with_interval(spread, times, "×"))),
            ("efficiency", lambda one: shown(one.efficiency, _ratio)),
            ("vs uncoupled", lambda one: shown(one.against_uncoupled, _ratio)),
            ("vs in step", lambda one: shown(one.against_in_step, _ratio)),
            ("step", lambda one: shown(getattr(one.step, "total", None), seconds)),
            ("exchange", lambda one: shown(getattr(one.step, "exchange", None), seconds)),
            ("waiting", lambda one: shown(getattr(one.step, "waiting", None), seconds)),
        ),
        note="Medians over the repetitions; in brackets 95% intervals of the mean. Ratios are taken "
        "repetition by repetition, so that what drifts slowly cancels out: speed-up against "
        f"{baseline_text(run)}, efficiency {ideal_text(run)}, against uncoupled X(N)/U(N), where U are as "
        "many ranks that run the same script with the same binding and exchange nothing"
        f"{in_step if any(point.in_step for point in run.points) else ''}. Scaling is {kind_text(run)}.",
        keep=4,
    )


def _ratio(spread: Spread) -> str:
    """0.744, interval 0.731 to 0.752 → ``74% (73–75)``."""
    return _with_interval(spread, percent, "%")


def _with_interval(spread: Spread, text: Callable[[float], str], unit: str) -> str:
    """Return a median and its interval in brackets, but for one that is 1 by definition."""

    def bare(value: float) -> str:
        return text(value).removesuffix(unit)

    one: Interval | None = spread.interval
    if one is None or bare(one.low) == bare(one.high) == bare(1.0):
        return text(spread.median)
    return f"{text(spread.median)} ({span(one.low, one.high, bare)})"


def repetitions(run: Run) -> str:
    """Return how often sizes were measured and, with a budget, whether intervals became narrow in it."""
    if run.budget is None or run.failure or not run.points:
        return str(run.repeats)
    counts = [len(point.samples) for point in run.points]
    many = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
    found = too_wide(run).items()
    wide = ", ".join(f"{name} ({percent(part) if part < math.inf else 'once'})" for name, part in found)
    if not wide:
        return f"{many}; all 95% intervals are at most {percent(NARROW)} wide"
    budget = f"the budget of {seconds(run.budget)}"
    return f"{many}; {budget} did not bring every 95% interval to {percent(NARROW)}: {wide}"


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


def _tiles(run: Run, top: Scaling) -> list[tuple[str, str]]:
    found = []
    if top.ranks > 1 and top.speedup is not None and top.efficiency is not None:
        work = f"{'as fast as' if run.strong else 'the work of'} {baseline_text(run)}"
        ideal = f"{top.ranks} times one" if run.baseline == ONE else f"{baseline_text(run)}, in proportion"
        efficiency = f"efficiency: {top.ranks} ranks against {ideal}{_extent(top.efficiency)}"
        found = [
            (times(top.speedup.median), f"{work}, on {plural(top.ranks, 'rank')}"),
            (percent(top.efficiency.median), efficiency),
        ]
    if top.against_uncoupled is not None:
        found.append(against_tile(top.ranks, top.against_uncoupled))
    return found


def against_tile(ranks: int, against: Spread) -> tuple[str, str]:
    """Return the tile of the ratio to independent ranks: one number only where the repetitions show one."""
    what = f"of what {ranks} independent ranks do"
    if against.count < 2:
        return percent(against.median), f"{what}, measured once"
    if against.clear_of(1.0):
        return percent(against.median), what + _extent(against)
    low, high = percent(against.low).removesuffix("%"), percent(against.high)
    return f"{low}–{high}", f"{what}: the repetitions vary too much for one number"


def _extent(spread: Spread) -> str:
    """Return how far the repetitions reach, where they differ."""
    low, high = percent(spread.low), percent(spread.high)
    return "" if low == high else f" ({low} to {high})".replace(" to ", "\u00a0to\u00a0")


def _samples(run: Run) -> tuple[Table, ...]:
    """Return every repetition's rate."""
    measured = [(point, kind, ones) for point in run.points for kind, ones in point.kinds if ones]
    table = table_of(
        "samples",
        f"Every repetition, {run.unit}/s",
        measured,
        (
            ("hosts×slots", lambda one: _named(one[0])),
            ("ranks are", lambda one: one[1]),
            ("in order", lambda one: "  ".join(f"{sample.rate:,.1f}" for sample in one[2])),
        ),
    )
    return (table,) if measured else ()


def transport_lines(run: Run) -> list[str]:
    """Return what is worth saying of the largest size, and what is wrong at the others, each once."""
    judged = [point for point in run.points if point.transport is not None]
    found: dict[str, str] = {}
    for rank, point in enumerate(sorted(judged, key=lambda one: -one.ranks)):
        assert point.transport is not None
        warnings = [f"{host.host}: {text}" for host in point.transport.hosts for text in host.warnings]
        for text in warnings if rank else proof_lines(point.transport):
            found.setdefault(text, f"{'! ' * (text in warnings)}{_named(point)}: {text}")
    return list(found.values())
