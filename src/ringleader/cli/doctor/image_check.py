"""``ringleader doctor --image``: the self-test of an image, shown as a table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ringleader.cli.json_output import JsonOptions, show
from ringleader.cli.terminal_progress import ProgressLine

COLUMN = 100
"""Widest text in a column of the table."""


def check_image(seconds: float, json: JsonOptions) -> int:
    """Run every check within ``seconds``, show what came of it; return the exit code."""
    from ringleader.doctor import document_of
    from ringleader.doctor.image_inspection import collect
    from ringleader.doctor.software_findings import judge
    from ringleader.finding import has_fault

    line = ProgressLine(prefix="")
    facts = collect(environ=os.environ, seconds=seconds, progress=line.show)
    line.clear()
    found = tuple(judge(facts))
    checks = [document_of(one) for one in found]
    image = facts.manifest.get("name") if facts.manifest else None
    values: dict[str, Any] = {"image": image, "ok": not has_fault(found), "checks": checks}
    show(json, values, lambda: f"{table_of(checks)}\n")
    return 3 if has_fault(found) else 0


def table_of(checks: Sequence[Mapping[str, str]]) -> str:
    """Return the findings as a table for people."""
    from tabulate import tabulate

    rows = []
    for one in checks:
        words = f"{one['what']}\n→ {one['do']}" if one.get("do") else one["what"]
        rows.append((one["id"], one["level"], words))
    return str(tabulate(rows, headers=("check", "", "what"), maxcolwidths=[None, None, COLUMN]))
