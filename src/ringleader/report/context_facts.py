"""What a reader needs to measure a run again, and what differs between the surroundings of several. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields

from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.elastic import ElasticRun
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.run_kinds import AnyRun
from ringleader.report.number_format import plural
from ringleader.scaling import Context, HostContext, Run

ONE_MACHINE = (
    "All hosts share one machine: its cores and memory, not only the link between them, make these numbers."
)
"""A caution."""


def day(date: str) -> str:
    """``2026-11-21T00:12:00+00:00`` → ``2026-11-21 00:12:00 UTC``."""
    return date.replace("T", " ").replace("+00:00", " UTC")


def hosts_text(context: Context) -> str:
    """Return the hosts, those that differ in nothing but the name in one go."""
    groups: dict[str, list[str]] = {}
    for host in context.hosts:
        groups.setdefault(_host_details(host), []).append(host.name)
    texts = [", ".join(names) + (f": {what}" if what else "") for what, names in groups.items()]
    return "; ".join(texts) + (" (all hosts share one machine)" if context.one_machine and texts else "")


def _host_details(host: HostContext) -> str:
    return ", ".join(part for part in (host.cpu, plural(host.cores, "core") if host.cores else "") if part)


def context_facts(context: Context) -> list[tuple[str, str]]:
    """Return (name, text) of what is known around a run, its command left out."""
    found = [
        ("Hosts", hosts_text(context)),
        ("Image", context.image),
        ("MPI", context.mpi),
        ("Transport", context.transport),
        ("Binding", context.binding),
        ("Threads for each rank", "" if context.threads is None else str(context.threads)),
        ("Python", context.python),
        ("PyTorch", context.torch),
        ("Ringleader", context.ringleader),
        ("Started", day(context.date)),
    ]
    return [(name, text) for name, text in found if text]


def differences(runs: Sequence[AnyRun]) -> list[tuple[str, tuple[str, ...]]]:
    """Return (what, its text in each run) for all that is not the same; dates and names aside.

    Between kinds only what several of them know counts: a map of pairs has no optimizer, and that commands
    are not the same is no news.
    """
    known = [_surroundings(run) for run in runs]
    names = dict.fromkeys(name for one in known for name in one)
    rows = [(name, tuple(one.get(name, "") for one in known)) for name in names]
    if len({type(run) for run in runs}) == 1:
        return [(name, texts) for name, texts in rows if len(set(texts)) > 1]
    return [(name, texts) for name, texts in rows if name != "command" and len(set(texts) - {""}) > 1]


def shown_difference(name: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts as a table shows them: commands without what they have in common at both ends."""
    if name != "command" or not all(texts):
        return tuple(texts)
    commands = [text.split(" ") for text in texts]
    least = min(map(len, commands))
    first = next((at for at in range(least) if len({one[at] for one in commands}) > 1), least)
    if first and commands[0][first - 1].startswith("-"):
        first -= 1  # the option whose value differs
    rest = least - first
    last = next((at for at in range(rest) if len({one[-1 - at] for one in commands}) > 1), rest)
    return tuple(" ".join([*["…"][:first], *one[first : len(one) - last], *["…"][:last]]) for one in commands)


def _surroundings(run: AnyRun) -> Mapping[str, str]:
    """Return all that a number of this run must be read with, by name."""
    names = [field.name for field in fields(Context) if field.name != "date"]
    found = {name: _shown(getattr(run.context, name)) for name in names}
    return found | {name: _shown(getattr(run, name)) for name in _settings_of(run)}


def _settings_of(run: AnyRun) -> tuple[str, ...]:
    if isinstance(run, Run):
        return ("repeats", "warmup", "strong", "global_batch", "baseline")
    if isinstance(run, PointToPointRun):
        return ("program", "memory", "window", "line_rate")
    if isinstance(run, CollectiveRun):
        return ("operation", "ranks", "per_host", "dtype", "redop", "line_rate")
    if isinstance(run, ElasticRun):
        return ("generations", "worlds", "ranks_started")
    return ("model", "batch", "precision", "optimizer", "data", "ranks", "per_host")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        if all(isinstance(item, str) for item in value):
            return shlex.join(value)
        return "; ".join(
            " ".join(
                str(part) for part in (host.name, host.cpu, host.cores and plural(host.cores, "core")) if part
            )
            for host in value
            if isinstance(host, HostContext)
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
