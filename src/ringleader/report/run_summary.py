"""What a page or a text says of one run, whatever its kind: sentences, tables, facts. Values only."""

from __future__ import annotations

from dataclasses import dataclass

NONE = "–"
"""Shown where a number was not measured."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cells as they are shown."""

    key: str
    """Names it in a page's addresses: ``numbers``."""
    title: str
    names: tuple[str, ...]
    """Of the columns."""
    rows: tuple[tuple[str, ...], ...]
    """The first cell of each names the row."""
    note: str = ""
    """How to read it."""
    is_prose: bool = False
    """Cells are words, not numbers: they stand at the left and may break."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run."""

    name: str
    kind: str
    """What it is, for a heading: ``Scaling report``."""
    headline: str
    """One sentence."""
    date: str = ""
    tiles: tuple[tuple[str, str], ...] = ()
    """The numbers to be seen first: (number, what it is)."""
    cautions: tuple[str, ...] = ()
    """Why a number might deserve less trust."""
    tables: tuple[Table, ...] = ()
    """What was measured."""
    findings: tuple[str, ...] = ()
    """What it means, a sentence or two each."""
    findings_title: str = "What limits it"
    evidence: tuple[Table, ...] = ()
    """What carried the bytes, and the like."""
    facts: tuple[tuple[str, str], ...] = ()
    """What a reader needs to measure it again: (name, text), only what is known."""
    details: tuple[Table, ...] = ()
    """For those who want all of it."""


def without_empty_columns(table: Table, keep: int = 1) -> Table:
    """Return the table without columns that have no number at all; the first ``keep`` stay."""
    columns = range(len(table.names))
    shown = [i for i in columns if i < keep or any(row[i] not in ("", NONE) for row in table.rows)]
    return Table(
        key=table.key,
        title=table.title,
        names=tuple(table.names[i] for i in shown),
        rows=tuple(tuple(row[i] for i in shown) for row in table.rows),
        note=table.note,
        is_prose=table.is_prose,
    )
