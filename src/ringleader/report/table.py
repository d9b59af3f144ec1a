"""A scaling run as a table, as Markdown and as JSON. Pure."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tabulate import tabulate

from ringleader.confidence_interval import CONFIDENCE, Interval
from ringleader.fabric.facts import document as facts_document
from ringleader.metrics import Spread
from ringleader.report import transport
from ringleader.report.baseline import baseline_text, ideal_text, kind_text
from ringleader.report.context_facts import context_facts, day
from ringleader.report.explain import explain
from ringleader.report.number_format import percent, seconds, thousands, times
from ringleader.report.run_summary import NONE
from ringleader.scaling import NARROW, Run, Scaling, scalings, too_wide

INTERVALS = "95 % confidence, Student's t on the logarithms of the repetitions"


def header(run: Run) -> tuple[str, ...]:
    """Return the columns' names."""
    return (
        "hosts×slots",
        "ranks",
        f"{run.unit}/s",
        "95 % interval",
        "speed-up",
        "efficiency",
        "vs uncoupled",
        "vs in step",
        "step",
        "exchange",
        "waiting",
    )


def _ratio(spread: Spread | None) -> str:
    """0.744, interval 0.731 to 0.752 → ``74 % (73–75)``."""
    if spread is None:
        return NONE
    return percent(spread.median) + _inside(spread.interval, lambda part: f"{100 * part:.0f}")


def _speedup(spread: Spread | None) -> str:
    if spread is None:
        return NONE
    return times(spread.median) + _inside(spread.interval, lambda factor: times(factor).removesuffix("×"))


def _inside(interval: Interval | None, text: Callable[[float], str]) -> str:
    """Return an interval in brackets; nothing where there is none, or where it is 1 by definition."""
    if interval is None or (text(interval.low) == text(interval.high) == text(1.0)):
        return ""
    return f" ({text(interval.low)}–{text(interval.high)})"


def row(result: Scaling) -> tuple[str, ...]:
    """Return one size's cells, in the order of ``header``."""
    step, between = result.step, result.rate.interval
    return (
        f"{result.hosts}×{result.slots}",
        str(result.ranks),
        thousands(result.rate.median),
        NONE if between is None else f"{thousands(between.low)}–{thousands(between.high)}",
        _speedup(result.speedup),
        _ratio(result.efficiency),
        _ratio(result.against_uncoupled),
        _ratio(result.against_in_step),
        NONE if step is None else seconds(step.total),
        NONE if step is None or step.exchange is None else seconds(step.exchange),
        NONE if step is None or step.waiting is None else seconds(step.waiting),
    )


def cells(run: Run) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return (header, rows), without the columns that no size has a number for (the first four stay)."""
    names = header(run)
    rows = [row(result) for result in scalings(run)]
    keep = [i for i in range(len(names)) if i < 4 or any(line[i] != NONE for line in rows)]
    return tuple(names[i] for i in keep), [tuple(line[i] for i in keep) for line in rows]


def as_text(run: Run) -> str:
    """Return the table for a terminal, with what it means below."""
    said = explain(run)
    parts = [_table(run, "simple"), "", said.headline, *(f"• {text}" for text in said.limits)]
    parts += [f"! {text}" for text in said.cautions]
    parts += [_reading(run)]
    parts += [f"Repetitions: {repetitions(run)}"] if run.budget is not None else []
    parts += [f"Transport: {run.context.transport}"] if run.context.transport else []
    parts += transport.lines(run)
    return "\n".join(parts) + "\n"


def _reading(run: Run) -> str:
    """Return how the numbers of the table are to be read."""
    shown = any(result.rate.interval for result in scalings(run))
    return f"Scaling: {kind_text(run)}; baseline: {baseline_text(run)}" + (
        "; in brackets: 95 % intervals" if shown else ""
    )


def _table(run: Run, style: str) -> str:
    names, rows = cells(run)
    align = ("left",) + ("right",) * (len(names) - 1)
    return str(tabulate(rows, names, tablefmt=style, disable_numparse=True, colalign=align))


def as_markdown(run: Run) -> str:
    """Return a Markdown section: headline, table, what limits it, context."""
    said = explain(run)
    lines = [f"## {escaped(run.name)}", "", f"**{escaped(said.headline)}**", "", _table(run, "pipe"), ""]
    lines += [f"- {escaped(text)}" for text in said.limits]
    lines += [f"- Caution: {escaped(text)}" for text in said.cautions]
    lines += ["", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {escaped(text)} |" for name, text in facts(run)]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return a text that is only text in Markdown, in one line."""
    for sign in ("\\", "|", "*", "_", "`", "<", "["):
        text = text.replace(sign, "\\" + sign)
    return text.replace("\n", " ")


def facts(run: Run) -> list[tuple[str, str]]:
    """Return what a reader needs to repeat the run: (name, text), only what is known."""
    found = [
        ("Command", shlex.join(run.context.command)),
        ("Grid", ",".join(point.name for point in run.points)),
        ("Scaling", kind_text(run)),
        ("Baseline", f"{baseline_text(run)}: efficiency is {ideal_text(run)}"),
        ("Intervals", INTERVALS if any(result.rate.interval for result in scalings(run)) else ""),
        ("Repetitions", f"{repetitions(run)}, sizes taken in turn, every second time backwards"),
        ("Warm-up left out", _warmup(run)),
    ]
    after = [("Resumed", ", ".join(map(day, run.resumed)))]
    return [(name, text) for name, text in (*found, *context_facts(run.context), *after) if text]


def repetitions(run: Run) -> str:
    """Return how often sizes were measured and, with a budget, whether intervals became narrow in it."""
    if run.budget is None or run.failure:
        return str(run.repeats)
    counts = [len(point.samples) for point in run.points]
    many = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
    found = too_wide(run).items()
    wide = ", ".join(f"{name} ({percent(part) if part < math.inf else 'once'})" for name, part in found)
    if not wide:
        return f"{many}; all 95 % intervals are at most {percent(NARROW)} wide"
    return f"{many}; the budget of {seconds(run.budget)} did not bring every 95 % interval to " + (
        f"{percent(NARROW)}: {wide}"
    )


def _warmup(run: Run) -> str:
    if run.unit == "images":
        return "by the script itself"
    if run.unit == "batches":
        return "the first epoch, where there are several"
    return f"the first {percent(run.warmup)} of the time in which all ranks trained"


def document(run: Run) -> dict[str, Any]:
    """Return the run's results as plain JSON values: rates per second, times in seconds, ratios as such."""
    said = explain(run)
    return {
        "schema": run.schema,
        "name": run.name,
        "unit": run.unit,
        "headline": said.headline,
        "limits": list(said.limits),
        "cautions": list(said.cautions),
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
            {"hosts": point.hosts, "slots": point.slots, "proof": facts_document(point.transport)}
            for point in run.points
            if point.transport is not None
        ],
    }


def as_json(run: Run) -> str:
    """Return ``document`` as text."""
    return json.dumps(document(run), indent=2, ensure_ascii=False) + "\n"
