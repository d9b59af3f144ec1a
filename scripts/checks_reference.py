"""Write docs/reference/checks.md from the checks themselves (``python scripts/checks_reference.py > …``)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import active_checks

from ringleader.doctor.software_checks import SOFTWARE_CHECKS
from ringleader.fabric.checks.between_hosts import COMPARISONS
from ringleader.fabric.checks.check import Check, Condition
from ringleader.fabric.checks.comparison import Comparison
from ringleader.fabric.checks.expectation_file import KEYS
from ringleader.fabric.checks.host_checks import HOST_CHECKS

HEAD = """# Checks of hosts

Written from the checks by `scripts/checks_reference.py`. `ringleader doctor` makes them on each host; it
reads files alone and changes nothing.

Each comes to `PASS`, `WARN` (it may fail, or be slow without a word), `FAIL` (jobs will not work, or not over
the network they were meant for) or `SKIP` (it cannot be judged here, or there is nothing to judge). Checks
that all need what a host lacks are one `SKIP` together: `rdma` on a host without RDMA. *Limits from* says
who named the numbers: `ours` are from nobody else, so take them as a question rather than an answer.
"""
BETWEEN = """## Between hosts

Each thing is the majority's value or another; the odd hosts are named. With a tie no host is the odd one: all
values are told. What is not known on a host is not compared. `hosts.same` says how many things are the same.
"""
EXPECTATIONS = """## Expectations

A profile says what each host should have: a TOML file with the tables and keys below, all of which may be
left out. Rates have a unit (`"400 Gbit/s"`), sizes may have one (`"32 GiB"`), `memlock` and `nofile` may be
`"unlimited"`. `expect.…` is `PASS` or `FAIL`, or `SKIP` where the host does not tell.

| key | check | means |
| --- | --- | --- |
"""


def _plain(text: str) -> str:
    """Return text in which Markdown sees no emphasis."""
    return text.replace("*", r"\*").replace("<", r"\<").replace("|", r"\|")


def _sentence(text: str) -> str:
    first = text.partition(" ")[0]
    is_name = not first.replace("'", "").replace(",", "").isalpha() or first.startswith(("lib", "openib"))
    return text.rstrip(".") + "." if is_name else f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _head(id: str, title: str, why: str) -> str:
    return f"### {id}\n\n**{_plain(_sentence(title))}** {_plain(_sentence(why))}\n\n"


def _conditions(condition: Condition | None) -> Iterator[str]:
    while condition is not None:
        yield condition.otherwise
        condition = condition.within


def _lines(pairs: Iterable[tuple[str, str]]) -> str:
    return "".join(f"* {name}: {_plain(text.rstrip('.'))}\n" for name, text in pairs if text)


def check_section(check: Check) -> str:
    """Return the section of one check."""
    unmet = list(_conditions(check.needs))[:1]
    pairs = (
        ("Reads", check.reads),
        ("PASS", check.passes),
        ("WARN", check.warns),
        ("FAIL", check.fails),
        ("SKIP", "; ".join(filter(None, (*unmet, check.skips)))),
        ("Remedy", check.remedy),
        ("Limits from", check.source),
    )
    return _head(check.id, check.title, check.why) + _lines(pairs)


def comparison_section(comparison: Comparison) -> str:
    """Return the section of one comparison."""
    pairs = (
        ("Reads", comparison.reads),
        ("WARN", comparison.warns),
        ("FAIL", comparison.fails),
        ("Remedy", comparison.remedy),
        ("Limits from", comparison.source),
    )
    return _head(comparison.id, comparison.title, comparison.why) + _lines(pairs)


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    groups: dict[str, list[Check]] = {}
    for check in (*HOST_CHECKS, *SOFTWARE_CHECKS):
        groups.setdefault(check.group, []).append(check)
    for group, checks in groups.items():
        parts += [f"## {group}\n", *(check_section(one) for one in checks)]
    parts += [BETWEEN, *(comparison_section(one) for one in COMPARISONS)]
    parts.append(active_checks.section())
    rows = (
        f"| `{key.path}` | `expect.{key.field.replace('_', '-')}` | {_plain(key.comment)} |\n" for key in KEYS
    )
    return "\n".join([*parts, EXPECTATIONS + "".join(rows)])


if __name__ == "__main__":
    sys.stdout.write(page())
