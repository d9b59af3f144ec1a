"""The rates between all hosts as a table of text. Pure."""

from __future__ import annotations

from ringleader.fabric.active.link_isolation import SLOW, isolate
from ringleader.fabric.active.measurements import MESSAGES, ActiveResults

MOST_HOSTS = 32
"""Rows and columns that a person reads."""
_UNITS = (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3))


def pair_matrix(results: ActiveResults, program: str = MESSAGES) -> str:
    """Return the table: a row for each sender, a column for each receiver; empty where nothing was measured.

    A rate below ``SLOW`` of the median of the hosts' best rates has an asterisk. Of several passes the
    highest rate counts; ``-`` was not measured.
    """
    rates = results.best_rates(program)
    if not rates:
        return ""
    reference = isolate(rates).reference
    unit, scale = next(((name, size) for name, size in _UNITS if reference >= size), ("bit/s", 1.0))
    names = results.hosts[:MOST_HOSTS]

    def cell(source: str, target: str) -> str:
        rate = rates.get((source, target))
        if rate is None:
            return "" if source == target else "-"
        return f"{_short(rate / scale)}{'*' if rate < SLOW * reference else ' '}"

    rows = [[source, *(cell(source, target) for target in names)] for source in names]
    header = ["from \\ to", *(f"{name} " for name in names)]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [_line(row, widths) for row in (header, *rows)]
    notes = [f"{unit}, {program}; * below {100 * SLOW:.0f} % of {_short(reference / scale)}"]
    if more := len(results.hosts) - len(names):
        notes.append(f"{more} more hosts are left out here, not in the JSON")
    return "\n".join([*(line.rstrip() for line in lines), "; ".join(notes)]) + "\n"


def _line(words: list[str], widths: list[int]) -> str:
    aligned = [word.rjust(width) for word, width in zip(words, widths, strict=True)]
    return "  ".join([words[0].ljust(widths[0]), *aligned[1:]])


def _short(value: float) -> str:
    """``395``, ``98.2``, ``9.41``."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
