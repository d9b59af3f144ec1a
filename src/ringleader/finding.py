"""What the self-test says. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters."""

    PASS = "PASS"
    WARN = "WARN"
    """Worth knowing; jobs run."""
    FAIL = "FAIL"
    """Jobs do not run, or the image is not fit to be handed out."""
    SKIP = "SKIP"
    """Could not be checked here, or there is nothing to check."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check and what came of it."""

    id: str
    """Stable name: ``torch``, ``sshd``."""
    level: Level
    what: str
    """Versions, or what is wrong, or why it was skipped."""
    do: str = ""
    """What helps; empty where nothing is to be done."""

    def plain(self) -> dict[str, str]:
        """Return the finding as plain values."""
        return {name: str(value) for name, value in asdict(self).items()}


def passed(id: str, what: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(id=id, level=Level.PASS, what=what)


def warned(id: str, what: str, do: str = "") -> Finding:
    """Return a finding that is worth knowing."""
    return Finding(id=id, level=Level.WARN, what=what, do=do)


def failed(id: str, what: str, do: str = "") -> Finding:
    """Return a finding that makes a place useless."""
    return Finding(id=id, level=Level.FAIL, what=what, do=do)


def skipped(id: str, why: str) -> Finding:
    """Return a check that was not done."""
    return Finding(id=id, level=Level.SKIP, what=why)


def fails(findings: Iterable[Finding]) -> bool:
    """Say whether any finding is a FAIL."""
    return any(one.level is Level.FAIL for one in findings)
