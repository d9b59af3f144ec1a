"""Results of checks as lines for people: what failed or warns in groups, worst first; the rest one line."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ringleader.fabric.check_result import CheckResult, Verdict, listed
from ringleader.report.number_format import plural

WORST_FIRST = tuple(Verdict)
WIDTH = 100
"""Columns where standard output is no terminal."""
OTHER_GROUP = "Not applicable"
"""Heading of what stands for several checks: a missing device."""
MOST_REASONS = 3


def results_text(
    results: Sequence[CheckResult],
    *,
    groups: Mapping[str, str],
    hosts: Sequence[str],
    verbose: bool = False,
    always: Collection[str] = (),
    width: int = WIDTH,
) -> str:
    """Return the text.

    ``groups``: id of each check that there is → its heading, in order. ``hosts``: all that were judged.
    ``verbose``: also what passed or could not be judged, line by line; without it that is so for the ids
    ``always``.
    """
    bad = (Verdict.FAIL, Verdict.WARN)
    shown = [one for one in results if verbose or one.verdict in bad or one.id in always]
    lines = [line for group in _grouped(shown, groups) for line in (*_group_lines(group, hosts, width), "")]
    lines += _wrapped("", summary(results, groups, verbose=verbose), width, indent=2)
    return "\n".join(lines) + "\n"


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
    for at, one in enumerate(results):
        start = f"  {str(one.verdict).upper()}  {one.id:<{column}}  "
        yield from _wrapped(start, _sentence(one, hosts), width, indent=len(start))
        following = results[at + 1] if at + 1 < len(results) else None
        if one.remedy and not (following and (following.id, following.remedy) == (one.id, one.remedy)):
            yield from _wrapped("        → ", one.remedy, width, indent=10)


def _sentence(one: CheckResult, hosts: Sequence[str]) -> str:
    """Return what was seen of what, held against what, and on which hosts."""
    text = f"{one.subject}: {one.seen}" if one.subject else one.seen
    if one.expected:
        text += f" (expected: {one.expected})"
    if len(hosts) > 1 or one.hosts:
        is_some = one.hosts and set(one.hosts) != set(hosts)
        named = listed(one.hosts) if is_some else f"all {len(hosts)} hosts"
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
    """Return in one line how much failed and warns, how many checks passed or had nothing to judge."""
    failures, warnings = (
        sum(one.verdict is verdict for one in results) for verdict in (Verdict.FAIL, Verdict.WARN)
    )
    judged = {one.id for one in results if one.verdict is not Verdict.SKIP and one.id in groups}
    bad = {one.id for one in results if one.verdict in (Verdict.FAIL, Verdict.WARN)}
    parts = [f"{failures} failed"] if failures else []
    parts += [plural(warnings, "warning")] if warnings else []
    parts += [f"{len(judged - bad)} passed"]
    idle = len(groups) - len(judged)
    parts += [f"{idle} not applicable"] if idle else []
    why = "" if verbose else ": " + "; ".join(_reasons(results, groups))
    return ", ".join(parts) + why.removesuffix(": ") + ("" if verbose else " (--verbose shows all)")


def _reasons(results: Iterable[CheckResult], groups: Mapping[str, str]) -> list[str]:
    """Return what hosts lack that many checks need: devices, not packages."""
    found = dict.fromkeys(
        one.seen.partition(":")[0]
        for one in results
        if one.verdict is Verdict.SKIP and one.id not in groups and not one.hosts and "package" not in one.id
    )
    return [*found][:MOST_REASONS]
