"""What a run is measured against, and which kind of scaling it is, in words. Pure."""

from __future__ import annotations

from ringleader.report.number_format import plural
from ringleader.scaling import Point, Run

ONE = "1x1"


def baseline_text(run: Run) -> str:
    """``one rank``, ``one host of 8 ranks`` or ``2 hosts of 4 ranks``."""
    if run.baseline == ONE:
        return "one rank"
    hosts, _, slots = run.baseline.partition("x")
    of = f"of {plural(int(slots), 'rank')}"
    return f"one host {of}" if hosts == "1" else f"{hosts} hosts {of}{' each' if slots != '1' else ''}"


def ideal_text(run: Run) -> str:
    """Return how efficiency is taken, as a formula in words of this run."""
    if run.baseline == ONE:
        return "X(N) / (N · X(1))"
    base = Point(hosts=int(run.baseline.partition("x")[0]), slots=int(run.baseline.partition("x")[2]))
    return f"X(N) / (N/{base.ranks} · X({base.ranks}))"


def kind_text(run: Run) -> str:
    """Return which scaling it is."""
    if not run.strong:
        return "weak: each rank's batch stays the same"
    if run.global_batch is None:
        return "strong: the global batch stays the same, shared out by the script"
    return f"strong: the global batch of {run.global_batch:,} stays the same"
