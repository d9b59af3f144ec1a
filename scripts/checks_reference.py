"""Write docs/reference/checks.md from ``checks.toml`` (``python scripts/checks_reference.py > …``)."""

from __future__ import annotations

import sys

import active_checks

from ringleader.doctor.software_checks import SOFTWARE_CHECKS
from ringleader.fabric.checks import HOST_CHECKS
from ringleader.fabric.checks.between_hosts import COMPARISONS
from ringleader.fabric.checks.check import Check
from ringleader.fabric.checks.kernel_log import HEALTHY, table
from ringleader.fabric.checks.profile import KEYS

HEAD = """# Checks of hosts

Written from `src/ringleader/fabric/checks/checks.toml` by `scripts/checks_reference.py`. `ringleader
doctor` makes them on each host; it reads files alone and changes nothing.

Each comes to `PASS`, `WARN` (it may fail, or be slow without a message), `FAIL` (jobs will not work, or not
over the network they were meant for) or `SKIP` (it cannot be judged here, or there is nothing to judge).
`PASS` has a line only where it is more than the opposite of the others. Checks that all need what a host
lacks are one `SKIP` together: `rdma` on a host without RDMA. *Limits from* says who named the numbers:
`ours` are from nobody else, so take them as a question rather than an answer. *Follows from*: where one of
these fails or warns for the same device, this one is shown beneath it.

Counters are judged by what they grew between two readings: with `--active` before and after it, with
`--since FILE` since the facts in that file were read. One reading alone holds all that was counted since
the host was started, so more is forgiven.
"""
BETWEEN = """## Between hosts

Each thing is the majority's value or another; the odd hosts are named. With a tie no host is the odd one: all
values are printed. What is not known on a host is not compared. `hosts.same` says how many things are the
same.
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


def section(check: Check) -> str:
    """Return the section of one check or comparison."""
    title, _, why = check.what.partition(". ")
    pairs = (
        ("Reads", check.reads),
        ("PASS", check.passes),
        ("WARN", check.warns),
        ("FAIL", check.fails),
        ("SKIP", "; ".join(filter(None, (check.needs.otherwise if check.needs else "", check.skips)))),
        ("Remedy", check.remedy),
        ("Limits from", check.source),
        ("Follows from", ", ".join(one.removesuffix("*") for one in check.follows)),
    )
    head = (
        f"### {check.id}\n\n**{_plain(_sentence(title))}** {_plain(_sentence(why)) if why else ''}".rstrip()
    )
    return f"{head}\n\n" + "".join(f"* {name}: {_plain(text.rstrip('.'))}\n" for name, text in pairs if text)


XIDS = """### Xids

Numbers and actions follow
[NVIDIA's Xid catalog](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) (October 2025);
the words are ours. `kernel.xid` fails for those in bold; the others, and numbers that this table lacks, are
reported while a job runs.

| Xid | means | what to do |
| --- | --- | --- |
"""


def xid_table() -> str:
    """Return what each Xid means."""
    rows = []
    for numbers, means, action in table()["xids"]:
        text = ", ".join(map(str, numbers))
        shown = text if action in HEALTHY else f"**{text}**"
        rows.append(f"| {shown} | {means} | {table()['actions'][action]} |\n")
    return XIDS + "".join(rows)


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    groups: dict[str, list[Check]] = {}
    for check in (*HOST_CHECKS, *SOFTWARE_CHECKS):
        groups.setdefault(check.group, []).append(check)
    for group, checks in groups.items():
        parts += [f"## {group}\n", *map(section, checks)]
        parts += [xid_table()] if group == "Kernel log" else []
    parts += [BETWEEN, *map(section, COMPARISONS), active_checks.section()]
    rows = (f"| `{one.rule['key']}` | `{one.id}` | {_plain(one.what)} |\n" for one in KEYS.values())
    return "\n".join([*parts, EXPECTATIONS + "".join(rows)])


if __name__ == "__main__":
    sys.stdout.write(page())
