"""Runs, and two runs compared, for a terminal, as Markdown and as JSON. Pure. `page` has the HTML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from tabulate import tabulate

from ringleader.measurements.run_kinds import AnyRun
from ringleader.report.compare import Comparison, differences, differences_table, notes
from ringleader.report.compare import table as compared_table
from ringleader.report.kinds import document, summary
from ringleader.report.regression_guard import Guard
from ringleader.report.summary import AGAIN, Summary, Table
from ringleader.report.trend import trend_tables, trends

FORMATS = ("table", "markdown", "json")


def runs_text(runs: Sequence[AnyRun], form: str = "table") -> str:
    """Return runs in one of ``FORMATS``, one after the other, and what differs between several."""
    if form == "json":
        documents = [document(run) for run in runs]
        found = [{"field": name, "values": list(texts)} for name, texts in differences(runs)]
        several_runs = {
            "runs": documents,
            "differences": found,
            "trends": [asdict(one) for one in trends(runs)],
        }
        whole = documents[0] if len(runs) == 1 else several_runs
        return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    several = differences(runs) if len(runs) > 1 else []
    different = differences_table("what differs", [run.name for run in runs], several)
    different = [*trend_tables(runs), *different] if len(runs) > 1 else different
    if form == "markdown":
        sections = [_section(summary(run)) for run in runs]
        return "\n".join([*sections, *(f"## {one.title}\n\n{_drawn(one, 'pipe')}\n" for one in different)])
    texts = [_terminal(summary(run)) for run in runs]
    if len(runs) == 1:
        return texts[0]
    parts = [f"{run.name}\n{'=' * len(run.name)}\n\n{text}" for run, text in zip(runs, texts, strict=True)]
    titles = {"trend": "Trend\n\n"}
    return "\n".join([*parts, *(f"{titles.get(one.key, '')}{_drawn(one, 'simple')}\n" for one in different)])


def _tables(said: Summary, style: str, heading: str) -> list[str]:
    """Return a run's tables with their titles; the one table of a kind that has ``lines`` needs none."""
    if said.lines:
        return [_drawn(one, style) for one in said.tables]
    tables = [one for one in said.tables + said.evidence if one.rows]
    titles = [one.title if style == "simple" else _escaped(one.title) for one in tables]
    both = zip(titles, tables, strict=True)
    return [f"{heading}{title}\n\n{_drawn(one, style)}" for title, one in both]


def _terminal(said: Summary) -> str:
    lines = [said.headline, *(f"• {text}" for text in said.findings)]
    lines += [*(f"! {text}" for text in said.cautions), *said.lines]
    return "\n\n".join([*_tables(said, "simple", ""), "\n".join(lines)]) + "\n"


def _section(said: Summary) -> str:
    parts = [f"## {_escaped(said.name)}", f"**{_escaped(said.headline)}**", *_tables(said, "pipe", "### ")]
    points = [f"- {_escaped(text)}" for text in said.findings]
    points += [f"- Caution: {_escaped(text)}" for text in said.cautions]
    parts += ["\n".join(points)] if points else []
    facts = [f"| {name} | {_escaped(text)} |" for name, text in said.facts if name != AGAIN]
    return "\n\n".join([*parts, "\n".join(["| | |", "| --- | --- |", *facts])]) + "\n"


def _drawn(one: Table, style: str, align: str = "") -> str:
    """Return a table; ``align``: ``l`` or ``r`` for each column, else numbers are at the right."""
    rows, names = one.rows, one.names
    if style == "pipe":
        rows = tuple(tuple(_escaped(cell) for cell in row) for row in rows)
        names = tuple(_escaped(name) for name in names)
    edges = align or "l" + ("l" if one.is_prose else "r") * (len(names) - 1)
    columns = tuple({"l": "left", "r": "right"}[edge] for edge in edges) if rows else None
    return str(tabulate(rows, names, tablefmt=style, disable_numparse=True, colalign=columns))


def _escaped(text: str) -> str:
    """Return a text that is only text in Markdown, in one line."""
    for sign in ("\\", "|", "*", "_", "`", "<", "["):
        text = text.replace(sign, "\\" + sign)
    return text.replace("\n", " ")


def comparison_text(result: Comparison, guard: Guard | None = None, form: str = "table") -> str:
    """Return a comparison with what the guard found, in one of ``FORMATS``."""
    if form == "json":
        whole = asdict(result)
        if guard is not None:
            whole["guard"] = {"passed": guard.passed, **asdict(guard)}
        return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    is_markdown = form == "markdown"
    style = "pipe" if is_markdown else "simple"
    parts = [_drawn(compared_table(result), style, "lrrrrl")]
    found = [(one.field, (one.before, one.after)) for one in result.differences]
    names = (result.before, result.after)
    parts += [_drawn(one, style) for one in differences_table("what differs", names, found)]
    said = [result.headline, *notes(result)]
    if is_markdown:
        first, *rest = map(_escaped, said)
        title = f"## {_escaped(result.before)} and {_escaped(result.after)}"
        said = [title, f"**{first}**", *parts, *rest]
    else:
        said[1:1] = parts
    text = "\n\n".join(said) + "\n"
    if guard is None:
        return text
    return f"{text}\n**{guard.headline}**\n" if is_markdown else f"{text}\n{guard.headline}\n"
