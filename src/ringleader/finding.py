"""What one check found, whatever was checked: a recipe, an image, a host, a job on a cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

UNVERIFIED = "unverified"
"""What is shown where a row names no source."""


class Level(StrEnum):
    """How much a finding matters, worst first."""

    FAULT = "fault"
    """It cannot work, or it has failed."""
    GONE = "gone"
    """It cannot be built today: what a historical image was made of is no longer there, or never fitted."""
    BLOCKED = "blocked"
    """It stands still until somebody acts."""
    WARNING = "warning"
    """It may fail, or be slow without a word."""
    WAITS = "waits"
    """It passes by itself."""
    EXEMPTION = "exemption"
    """What a historical image lacks of the hardening of today's images."""
    NOTE = "note"
    SKIPPED = "skipped"
    """Could not be checked here, or there is nothing to check."""
    PASSED = "passed"


@dataclass(frozen=True, kw_only=True)
class Cited:
    """A row of a table on which a finding rests."""

    row: str
    """Which one: ``torch 2.8 cu128``."""
    says: str
    source: str
    """Empty: nobody looked it up."""

    @property
    def shown_source(self) -> str:
        """The source, or that there is none."""
        return self.source or UNVERIFIED

    def __str__(self) -> str:
        return f"{self.row}: {self.says} [{self.shown_source}]"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a check found."""

    level: Level
    where: str
    """Stable name of a check (``torch-python``, ``sshd``), or the object: ``train-worker-0 and 3 more``."""
    what: str
    """One sentence without a full stop: what is wrong, versions, or why it was skipped."""
    hint: str = ""
    """What helps, or the nearest set that works; empty where nothing is to be done."""
    rows: tuple[Cited, ...] = ()
    """Rows of the tables that clash, with their sources."""


def fault(where: str, what: str, *rows: Cited, hint: str = "") -> Finding:
    """Return a fault; a warning where a row that it rests on has no source: nobody looked that up."""
    level = Level.FAULT if all(row.source for row in rows) else Level.WARNING
    return Finding(level=level, where=where, what=what, rows=rows, hint=hint)


def warning(where: str, what: str, *rows: Cited, hint: str = "") -> Finding:
    """Return what is worth knowing although it works: it may be slow, or work only here."""
    return Finding(level=Level.WARNING, where=where, what=what, rows=rows, hint=hint)


def note(where: str, what: str, *rows: Cited, hint: str = "") -> Finding:
    """Return a note."""
    return Finding(level=Level.NOTE, where=where, what=what, rows=rows, hint=hint)


def passed(where: str, what: str) -> Finding:
    """Return that all is well."""
    return Finding(level=Level.PASSED, where=where, what=what)


def skipped(where: str, why: str) -> Finding:
    """Return a check that was not done."""
    return Finding(level=Level.SKIPPED, where=where, what=why)


def has_fault(findings: Iterable[Finding]) -> bool:
    """Tell whether any finding is a fault."""
    return any(one.level is Level.FAULT for one in findings)
