"""Several hosts held beside each other: what differs, and which host is the odd one. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.checks import hardware_comparisons, software_comparisons, system_comparisons
from ringleader.fabric.checks.comparison import Comparison
from ringleader.fabric.facts import HostFacts

COMPARISONS: tuple[Comparison, ...] = (
    *hardware_comparisons.COMPARISONS,
    *software_comparisons.COMPARISONS,
    *system_comparisons.COMPARISONS,
)


def compare_hosts(facts: Mapping[str, HostFacts]) -> tuple[CheckResult, ...]:
    """Return what differs between hosts, by the name under which each was asked; then how much is the same.

    ``hosts`` of a result are the odd ones; with a tie, all. Of one host alone nothing is said.
    """
    if len(facts) < 2:
        return ()
    found = [one.differences(facts) for one in COMPARISONS]
    alike = sum(not one for one in found)
    seen = f"{alike} of {len(COMPARISONS)} things are the same on {len(facts)} hosts, where they are known"
    same = CheckResult(id="hosts.same", verdict=Verdict.PASS, seen=seen, hosts=tuple(facts))
    return (*(result for results in found for result in results), same)
