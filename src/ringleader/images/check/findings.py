"""What a check finds, as values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ringleader.images.tables.toml_rows import Cited


class Level(StrEnum):
    """How much a finding matters, worst first."""

    FAULT = "fault"
    """It cannot work."""
    GONE = "gone"
    """It cannot be built today: what a historical image was made of is no longer there, or never fitted."""
    WARNING = "warning"
    """It may fail, or be slow without a word."""
    EXEMPTION = "exemption"
    """What a historical image lacks of the hardening of today's images."""
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a check found."""

    level: Level
    rule: str
    """Name of the rule: ``torch-python``."""
    what: str
    """One sentence without a full stop."""
    rows: tuple[Cited, ...] = ()
    """Rows of the tables that clash, with their sources."""
    works: str = ""
    """The nearest set that works, or what to do."""

    @property
    def is_fault(self) -> bool:
        """Tell whether the image cannot work."""
        return self.level is Level.FAULT


def fault(rule: str, what: str, *rows: Cited, works: str = "") -> Finding:
    """Return a fault; a warning where a row that it rests on has no source: nobody looked that up."""
    level = Level.FAULT if all(row.source for row in rows) else Level.WARNING
    return Finding(level=level, rule=rule, what=what, rows=rows, works=works)


def warning(rule: str, what: str, *rows: Cited, works: str = "") -> Finding:
    """Return a warning."""
    return Finding(level=Level.WARNING, rule=rule, what=what, rows=rows, works=works)


def note(rule: str, what: str, *rows: Cited, works: str = "") -> Finding:
    """Return a note."""
    return Finding(level=Level.NOTE, rule=rule, what=what, rows=rows, works=works)


def gone(historical: bool, rule: str, what: str, *rows: Cited, works: str = "") -> Finding:
    """Return what cannot be built today: no fault in an image that is told to be as it was then."""
    found = fault(rule, what, *rows, works=works)
    if historical and found.is_fault:
        return Finding(level=Level.GONE, rule=rule, what=what, rows=rows, works=works)
    return found
