"""A run's summary for a terminal and as Markdown; several runs with what differs between them. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tabulate import tabulate

from ringleader.measurements.run_kinds import AnyRun
from ringleader.report import table
from ringleader.report.context_facts import differences, shown_difference
from ringleader.report.run_summary import NONE, RunSummary, Table
from ringleader.report.summary_of_kind import document, summary
from ringleader.report.table import escaped
from ringleader.scaling import Run


def as_text(runs: Sequence[AnyRun]) -> str:
    """Return one run for a terminal, or several, one after the other, and what differs."""
    if len(runs) == 1:
        return _one_text(runs[0])
    parts = [f"{run.name}\n{'=' * len(run.name)}\n\n{_one_text(run)}" for run in runs]
    return "\n".join([*parts, *_different(runs, "simple")])


def as_markdown(runs: Sequence[AnyRun]) -> str:
    """Return a Markdown section for each run, and one on what differs."""
    parts = [table.as_markdown(run) if isinstance(run, Run) else _section(summary(run)) for run in runs]
    different = _different(runs, "pipe") if len(runs) > 1 else []
    return "\n".join([*parts, *([f"## What differs\n\n{different[0]}"] if different else [])])


def as_json(runs: Sequence[AnyRun]) -> str:
    """Return one run's results, or ``runs`` and ``differences`` of several."""
    if len(runs) == 1:
        return json.dumps(document(runs[0]), indent=2, ensure_ascii=False) + "\n"
    different = [{"field": name, "values": list(texts)} for name, texts in differences(runs)]
    whole = {"runs": [document(run) for run in runs], "differences": different}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _one_text(run: AnyRun) -> str:
    if isinstance(run, Run):
        return table.as_text(run)
    said = summary(run)
    tables = [f"{one.title}\n\n{_drawn(one, 'simple')}" for one in (*said.tables, *said.evidence)]
    lines = [said.headline, *(f"• {text}" for text in said.findings)]
    lines += [f"! {text}" for text in said.cautions]
    return "\n\n".join([*tables, "\n".join(lines)]) + "\n"


def _section(said: RunSummary) -> str:
    parts = [f"## {escaped(said.name)}", f"**{escaped(said.headline)}**"]
    parts += [f"### {escaped(one.title)}\n\n{_drawn(one, 'pipe')}" for one in (*said.tables, *said.evidence)]
    points = [f"- {escaped(text)}" for text in said.findings]
    points += [f"- Caution: {escaped(text)}" for text in said.cautions]
    parts += ["\n".join(points)] if points else []
    facts = [f"| {name} | {escaped(text)} |" for name, text in said.facts]
    return "\n\n".join([*parts, "\n".join(["| | |", "| --- | --- |", *facts])]) + "\n"


def _drawn(one: Table, style: str) -> str:
    rows, names = one.rows, one.names
    if style == "pipe":
        rows = tuple(tuple(escaped(cell) for cell in row) for row in rows)
        names = tuple(escaped(name) for name in names)
    align = ("left",) + ("left" if one.is_prose else "right",) * (len(one.names) - 1)
    return str(tabulate(rows, names, tablefmt=style, disable_numparse=True, colalign=align if rows else None))


def _different(runs: Sequence[AnyRun], style: str) -> list[str]:
    found = [(name, shown_difference(name, texts)) for name, texts in differences(runs)]
    rows = [(name, *(text or NONE for text in texts)) for name, texts in found]
    names = ("what differs", *(run.name for run in runs))
    if not rows:
        return []
    return [
        _drawn(Table(key="differs", title="", names=names, rows=tuple(rows), is_prose=True), style) + "\n"
    ]
