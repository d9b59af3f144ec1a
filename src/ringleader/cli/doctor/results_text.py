"""Results of checks as lines for people: what failed or warns in groups, worst first; the rest one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ringleader.doctor.merged_results import hosts_named
from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.report.number_format import plural

WORST_FIRST = tuple(Verdict)
WIDTH = 100
"""Columns where standard output is no terminal."""
OTHER_GROUP = "Not applicable"
"""Heading of what stands for several checks: a missing device."""
MOST_REASONS = 4


def results_text(
    results: Sequence[CheckResult],
    *,
    groups: Mapping[str, str],
    hosts: Sequence[str],
    verbose: bool = False,
    width: int = WIDTH,
) -> str:
    """Return the text.

    ``groups``: id of each check that there is → its heading, in order. ``hosts``: all that were judged.
    ``verbose``: also what passed or could not be judged, line by line.
    """
    shown = [one for one in results if verbose or one.verdict in (Verdict.FAIL, Verdict.WARN)]
    lines = [line for group in _grouped(shown, groups) for line in (*_group_lines(group, hosts, width), "")]
    return "\n".join([*lines, summary(results, groups, verbose=verbose)]) + "\n"


Group = tuple[str, list[CheckResult]]


def _grouped(results: Iterable[CheckResult], groups: Mapping[str, str]) -> list[Group]:
    """Return headings with their results, worst first; of equal ones as they came."""
    found: dict[str, list[CheckResult]] = {}
    for one in results:
        found.setdefault(groups.get(one.id, OTHER_GROUP), []).append(one)
    ordered = [(name, sorted(own, key=_rank)) for name, own in found.items()]
    return sorted(ordered, key=lambda group: _rank(group[1][0]))


def _rank(result: CheckResult) -> int:
    return WORST_FIRST.index(result.verdict)


def _group_lines(group: Group, hosts: Sequence[str], width: int) -> Iterable[str]:
    name, results = group
    yield name
    column = max(len(one.id) for one in results)
    for one in results:
        start = f"  {str(one.verdict).upper()}  {one.id:<{column}}  "
        yield from _wrapped(start, _sentence(one, hosts), width, indent=len(start))
        if one.remedy:
            yield from _wrapped("        → ", one.remedy, width, indent=10)


def _sentence(one: CheckResult, hosts: Sequence[str]) -> str:
    """Return what was seen of what, held against what, and on which hosts."""
    text = f"{one.subject}: {one.seen}" if one.subject else one.seen
    if one.expected:
        text += f" (expected: {one.expected})"
    if len(hosts) > 1 or one.hosts:
        named = hosts_named(one.hosts) if one.hosts else f"all {len(hosts)} hosts"
        text += f" [{named}]"
    return text


def _wrapped(start: str, text: str, width: int, *, indent: int) -> Iterable[str]:
    """Yield lines of at most ``width`` columns; words are never cut."""
    line, empty = start, True
    for word in text.split():
        if not empty and len(line) + 1 + len(word) > width:
            yield line
            line, empty = " " * indent, True
        line += word if empty else f" {word}"
        empty = False
    yield line.rstrip()


def summary(results: Sequence[CheckResult], groups: Mapping[str, str], *, verbose: bool = False) -> str:
    """Return how many checks failed, warn, passed and had nothing to judge, and why, as one line."""
    worst: dict[str, Verdict] = {}
    order = (Verdict.FAIL, Verdict.WARN, Verdict.PASS, Verdict.SKIP)
    for one in results:
        if one.id in groups:
            worst[one.id] = min(worst.get(one.id, Verdict.SKIP), one.verdict, key=order.index)
    counts = {verdict: sum(found is verdict for found in worst.values()) for verdict in order}
    parts = [f"{counts[Verdict.FAIL]} failed"] if counts[Verdict.FAIL] else []
    parts += [plural(counts[Verdict.WARN], "warning")] if counts[Verdict.WARN] else []
    parts += [f"{counts[Verdict.PASS]} passed"]
    idle = len(groups) - len(worst) + counts[Verdict.SKIP]
    parts += [f"{idle} not applicable"] if idle else []
    reasons = dict.fromkeys(
        one.seen.partition(":")[0]
        for one in results
        if one.verdict is Verdict.SKIP and one.id not in groups and not one.hosts
    )
    why = ": " + "; ".join([*reasons][:MOST_REASONS]) if reasons and not verbose else ""
    more = "" if verbose else " (--verbose shows all)"
    return ", ".join(parts) + why + more
