"""What a host or an image has for jobs, tried where that is asked for, as findings with a cure."""

from __future__ import annotations

from ringleader.finding import Finding, Level

LEVELS = {Level.PASSED: "PASS", Level.WARNING: "WARN", Level.FAULT: "FAIL", Level.SKIPPED: "SKIP"}
"""Level → what ``ringleader doctor`` prints for it."""


def document_of(one: Finding) -> dict[str, str]:
    """Return a finding as plain values: a row of the table, an object of the JSON."""
    return {"id": one.where, "level": LEVELS[one.level], "what": one.what, "do": one.hint}
