"""The section on active tests of docs/reference/checks.md: active_checks.md with thresholds filled in."""

from __future__ import annotations

from pathlib import Path

from ringleader.doctor import active_verdicts
from ringleader.fabric.active import link_isolation, link_results

PARTS = {
    active_verdicts: "EXPECTED_PART",
    link_isolation: "SLOW GOOD FAR_SLOWER CLEARED SCATTER WHOLE_CUT MEASURED",
    link_results: "FAR",
}
"""Module → names of thresholds that are parts of something, written as percentages."""
NUMBERS = {active_verdicts: "RATIO FAR_RATIO SCORE", link_results: "LATENCY_RATIO LATENCY_FAR"}


def section() -> str:
    """Return the section."""
    parts = {name: 100 * getattr(of, name) for of, names in PARTS.items() for name in names.split()}
    numbers = {name: getattr(of, name) for of, names in NUMBERS.items() for name in names.split()}
    text = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return text.format(**parts, **numbers)
