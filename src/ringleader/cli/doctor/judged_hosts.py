"""What is said of hosts, as text for people and as JSON: the hosts, the table of nodes, each result."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from ringleader.cli.output import Result, table
from ringleader.dataclass_json import document
from ringleader.doctor.hosts_reading import HostsReading
from ringleader.doctor.judgement import Judgement
from ringleader.fabric.active.link_results import pair_matrix
from ringleader.fabric.check_result import CheckResult, Verdict, listed
from ringleader.fabric.checks.check import meet
from ringleader.fabric.cluster_facts import ClusterFacts, NicNeeds
from ringleader.fabric.facts import HostFacts
from ringleader.number_format import plural

if TYPE_CHECKING:
    from ringleader.doctor.active_tests import ActiveResults


def node_table(facts: ClusterFacts, needs: NicNeeds) -> str:
    """Return a row for each node: whether it is ready, its NICs, GPUs and taints."""
    header = ("node", "ready", needs.resource or "NICs", "GPUs", "taints")
    rows = [
        (
            node.name,
            ("yes" if node.schedulable else "cordoned") if node.ready else "no",
            f"{node.allocatable.get(needs.resource, 0):.0f}" if needs.resource else "-",
            f"{node.allocatable.get('nvidia.com/gpu', 0):.0f}",
            ", ".join(map(str, node.taints)) or "-",
        )
        for node in facts.nodes
    ]
    return table(rows, header, form="plain") + "\n"


def documents_of(results: Iterable[CheckResult], groups: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return one object for each result. ``hosts``: of which of several, ``cause``: what explains it."""
    return [
        {
            "id": one.id,
            "verdict": str(one.verdict),
            "group": groups.get(one.id, ""),
            "subject": one.subject,
            "seen": one.seen,
            "expected": one.expected,
            "remedy": one.remedy,
            **({"hosts": list(one.hosts)} if one.hosts else {}),
            **({"cause": one.cause} if one.cause else {}),
        }
        for one in results
    ]


MOST_KINDS = 4


def host_lines(by_host: Mapping[str, HostFacts]) -> list[str]:
    """Return one line for each kind of host among them, the most frequent first."""
    kinds: dict[str, list[str]] = {}
    for host, facts in by_host.items():
        kinds.setdefault(described(facts), []).append(host)
    ordered = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    lines = [f"{listed(hosts)}: {kind}" for kind, hosts in ordered[:MOST_KINDS]]
    return lines + ([f"… and {len(ordered) - MOST_KINDS} other kinds"] if len(ordered) > MOST_KINDS else [])


def described(facts: HostFacts) -> str:
    """Return system, processors, memory, GPUs and RDMA devices: ``Ubuntu 24.04, 96 CPUs, 8 GPUs (…)``."""
    memory = f"{(facts.memory + (1 << 29)) >> 30} GiB" if facts.memory else ""
    place = " in ".join(one for one in (facts.container, facts.hypervisor) if one)
    words = [
        facts.system or "Linux",
        "" if "the process" in facts.late_areas else plural(facts.process.cpus, "CPU"),
        memory,
        place,
        _gpus(facts),
        _rdma(facts),
    ]
    return ", ".join(word for word in words if word)


def _gpus(facts: HostFacts) -> str:
    if not facts.gpus:
        return "GPUs not read" if "GPUs" in facts.late_areas else "no GPU"
    names = Counter(one.name for one in facts.gpus if one.name)
    kinds = f" ({', '.join(names)})" if names else ""
    return plural(len(facts.gpus), "GPU") + kinds


def _rdma(facts: HostFacts) -> str:
    ports = [port for device in facts.rdma_devices for port in device.ports]
    if not facts.rdma_devices:
        return "RDMA devices not read" if "RDMA devices" in facts.late_areas else "no RDMA device"
    rates = Counter(port.rate_text for port in ports if port.rate_text)
    layers = Counter(port.link_layer for port in ports if port.link_layer)
    kinds = ", ".join([*layers, *rates][:3])
    return plural(len(facts.rdma_devices), "RDMA device") + (f" ({kinds})" if kinds else "")


WORST_FIRST = tuple(Verdict)
WIDTH = 100
"""Columns where standard output is not a terminal."""
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
    trees = trees_of(results)
    shown = [one for one in trees if verbose or one[0].is_bad or one[0].id in always]
    lines = [line for group in _grouped(shown, groups) for line in (*_group_lines(group, hosts, width), "")]
    lines += _wrapped("", summary(results, groups, verbose=verbose), width, indent=2)
    return "\n".join(lines) + "\n"


Tree = tuple[CheckResult, ...]
"""A result, and behind it those that follow from it."""
Group = tuple[str, list[Tree]]


def trees_of(results: Sequence[CheckResult]) -> list[Tree]:
    """Return each result that follows from no other, with its consequences on the same hosts."""
    found = [[one] for one in results if not one.cause]
    for one in results:
        if one.cause:
            causes = (tree for tree in found if tree[0].name == one.cause and meet(one, tree[0]))
            next(causes, found[0]).append(one)
    return [tuple(tree) for tree in found]


def _grouped(trees: Iterable[Tree], groups: Mapping[str, str]) -> list[Group]:
    """Return headings with their results, worst first; of equal ones as they came."""
    found: dict[str, list[Tree]] = {}
    for one in trees:
        found.setdefault(groups.get(one[0].id, OTHER_GROUP), []).append(one)
    ordered = [(name, sorted(own, key=_rank)) for name, own in found.items()]
    return sorted(ordered, key=lambda group: _rank(group[1][0]))


def _rank(tree: Tree) -> int:
    return min(WORST_FIRST.index(one.verdict) for one in tree)


def _group_lines(group: Group, hosts: Sequence[str], width: int) -> Iterable[str]:
    name, trees = group
    yield name
    column = max(len(tree[0].id) for tree in trees)
    for at, (one, *consequences) in enumerate(trees):
        start = f"  {str(one.verdict).upper()}  {one.id:<{column}}  "
        yield from _wrapped(start, _sentence(one, hosts), width, indent=len(start))
        for each in consequences:
            below = f"        ↳ {str(each.verdict).upper()}  {each.id}  "
            yield from _wrapped(below, _sentence(each, hosts), width, indent=len(below))
        following = trees[at + 1][0] if at + 1 < len(trees) else None
        if one.remedy and not (following and (following.id, following.remedy) == (one.id, one.remedy)):
            yield from _wrapped("        → ", one.remedy, width, indent=10)


def _sentence(one: CheckResult, hosts: Sequence[str]) -> str:
    """Return what was seen of what, compared with what, and on which hosts."""
    text = f"{one.subject}: {one.seen}" if one.subject else one.seen
    if one.expected:
        text += f" (expected: {one.expected})"
    if len(hosts) > 1 or one.hosts:
        is_some = one.hosts and set(one.hosts) != set(hosts)
        named = listed(one.hosts) if is_some else f"all {len(hosts)} hosts"
        text += f" [{named}]"
    return text


def _wrapped(start: str, text: str, width: int, *, indent: int) -> list[str]:
    """Return lines of at most ``width`` columns; words are never cut."""
    lines = wrap(
        " ".join(text.split()),
        width,
        initial_indent=start,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [start.rstrip()]


def summary(results: Sequence[CheckResult], groups: Mapping[str, str], *, verbose: bool = False) -> str:
    """Return in one line how much failed and warns, how many checks passed or had nothing to judge."""
    worst = Counter(WORST_FIRST[_rank(tree)] for tree in trees_of(results))
    failures, warnings = worst[Verdict.FAIL], worst[Verdict.WARN]
    following = sum(bool(one.cause) for one in results)
    judged = {one.id for one in results if one.verdict is not Verdict.SKIP and one.id in groups}
    bad = {one.id for one in results if one.is_bad}
    parts = [f"{failures} failed"] if failures else []
    parts += [plural(warnings, "warning")] if warnings else []
    parts += [plural(following, "consequence")] if following else []
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


NARROWEST, WIDEST = 60, 140


def show_judgement(judged: Judgement, read: HostsReading, result: Result, *, verbose: bool) -> int:
    """Show what is said of the hosts that were read; return the exit code."""
    result.show(judgement_document(judged), lambda: judgement_text(judged, read, verbose))
    return 0 if judged.ok else 3


def judgement_text(judged: Judgement, read: HostsReading, verbose: bool, width: int | None = None) -> str:
    """Return the text for people: what the hosts are, then the results."""
    columns = width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH)
    columns = min(max(columns, NARROWEST), WIDEST)
    head = "".join(f"{line}\n" for line in host_lines(read.facts))
    if judged.cluster is not None:
        head += f"\n{node_table(*judged.cluster)}" if head else node_table(*judged.cluster)
    if (measured := judged.measured) is not None:
        matrix = pair_matrix(measured.hosts, measured.best_rates())
        head += f"\n{matrix}" if matrix else ""
    results = results_text(
        judged.results(),
        groups=judged.groups(),
        hosts=judged.hosts,
        verbose=verbose,
        always=judged.answers(),
        width=columns,
    )
    return printable(f"{head}\n{results}" if head else results)


def printable(text: str) -> str:
    """Return a text without letters that steer a terminal: names come from other hosts and files."""
    return "".join(one if one.isprintable() or one == "\n" else "?" for one in text)


def active_document(measured: ActiveResults) -> dict[str, Any]:
    """Return what was measured, with names beside numbers of hosts.

    ``pair_rates`` are bits per second in each direction, ``pair_latencies`` seconds of each pair.
    """
    values: dict[str, Any] = document(measured)
    rates, latencies = measured.best_rates().items(), measured.lowest_latencies().items()
    values["pair_rates"] = [{"source": a, "target": b, "rate": rate} for (a, b), rate in rates]
    values["pair_latencies"] = [{"source": a, "target": b, "latency": one} for (a, b), one in latencies]
    for one in values["silences"]:
        one["host"], one["partner"] = (measured.hosts[one[end]] for end in ("source", "target"))
    return values


def judgement_document(judged: Judgement) -> dict[str, Any]:
    """Return the result for programs. Of several hosts: also each host's own results."""
    names = judged.groups()
    values: dict[str, Any] = {"ok": judged.ok, "checks": documents_of(judged.results(), names)}
    if judged.cluster is not None:
        values["nodes"] = document(judged.cluster[0].nodes)
    if judged.measured is not None:
        values["active"] = active_document(judged.measured)
    if len(judged.hosts) == 1 and not judged.unread:
        return {"host": judged.hosts[0], **values}
    return {
        **values,
        "hosts": [
            {"host": host, "checks": documents_of(results, names)} for host, results in judged.by_host.items()
        ],
    }
