"""Results of checks as plain values for ``--json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ringleader.fabric.check_result import CheckResult, Verdict


def documents_of(results: Iterable[CheckResult], groups: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return one object for each result. ``hosts`` is there where a result is said of some of several."""
    return [_document_of(one, groups) for one in results]


def _document_of(one: CheckResult, groups: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": one.id,
        "verdict": str(one.verdict),
        "group": groups.get(one.id, ""),
        "subject": one.subject,
        "seen": one.seen,
        "expected": one.expected,
        "remedy": one.remedy,
    }
    return values | ({"hosts": list(one.hosts)} if one.hosts else {})


def has_failure(results: Iterable[CheckResult]) -> bool:
    """Tell whether any check failed."""
    return any(one.verdict is Verdict.FAIL for one in results)
