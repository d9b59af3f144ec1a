"""Going on with a stored scaling run: what may be added, and what must not have changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ringleader.bench.grid import Size, hosts_for
from ringleader.bench.scale import Scale
from ringleader.errors import Fault
from ringleader.plan.job import Host
from ringleader.scaling import Run

_ANEW = "begin a new run with another --name; ringleader report compares the two"


def extended_grid(stored: Run, added: Sequence[Size]) -> tuple[Size, ...]:
    """Return the sizes of a stored run and behind them those that are new."""
    known = tuple(Size(hosts=point.hosts, slots=point.slots) for point in stored.points)
    return (*known, *(size for size in added if size not in known))


def changed_request(stored: Run, asked: Scale, *, same_hosts: bool) -> list[Fault]:
    """Return what is asked for otherwise than the stored run was, so that its numbers would not belong to it.

    ``same_hosts``: hosts must have the same names. In a batch allocation they change from job to job, and
    only their cores count (``changed_hosts``).
    """
    before = stored.request
    found = []
    if before is None or not before.workdir:
        what = "was kept by a version of Ringleader that could not resume"
        return [Fault(where=stored.name, what=what, hint=_ANEW)]
    pairs: tuple[tuple[str, object, object], ...] = (
        ("COMMAND", " ".join(stored.context.command), " ".join(asked.job.command)),
        ("working directory", before.workdir, asked.request.workdir),
        ("--warmup", stored.warmup, asked.warmup),
        ("--strong", stored.strong, asked.strong),
        ("--global-batch", stored.global_batch, asked.global_batch),
        ("--bind", stored.context.binding, asked.job.bind),
        ("--no-uncoupled", not stored.uncoupled, not asked.uncoupled),
        ("--lab", stored.context.lab, asked.lab),
    )
    for where, old, new in pairs:
        if old != new:
            found.append(Fault(where=where, what=f"was {_shown(old)}, is {_shown(new)} now", hint=_ANEW))
    is_same_call = not {"COMMAND", "working directory"} & {fault.where for fault in found}
    if is_same_call and before.script_digest not in ("", asked.request.script_digest):
        what = (
            f"{before.script} has changed since" if asked.request.script_digest else "is not there any more"
        )
        found.append(Fault(where=before.script, what=what, hint=_ANEW))
    if asked.repeats < stored.repeats:
        what = f"{asked.repeats} repetitions; the run has {stored.repeats} already"
        found.append(Fault(where="--repeats", what=what, hint="ask for as many or more"))
    if same_hosts:
        found += _other_hosts(stored, asked)
    return found


def changed_hosts(stored: Run, cores: Mapping[str, int]) -> list[Fault]:
    """Return hosts that have another number of cores than before. ``cores``: by the name the user gives."""
    return [
        Fault(
            where=host.name,
            what=f"had {host.cores} cores for its ranks, has {cores[host.name]} now",
            hint=_ANEW,
        )
        for host in stored.context.hosts
        if host.cores is not None and cores.get(host.name, host.cores) != host.cores
    ]


def _other_hosts(stored: Run, asked: Scale) -> list[Fault]:
    """Return the sizes that would run on other hosts than their first repetitions did."""
    before = () if stored.request is None else tuple(map(_host, stored.request.hosts))
    found = []
    for point in stored.points:
        size = Size(hosts=point.hosts, slots=point.slots)
        crowd = asked.job.oversubscribe
        old, new = (hosts_for(size, hosts, oversubscribe=crowd) for hosts in (before, asked.job.hosts))
        if any(samples for _kind, samples in point.kinds) and old != new:
            what = f"ran on {_names(old)}, would run on {_names(new)} now"
            found.append(Fault(where=str(size), what=what, hint="name the same hosts in the same order"))
    return found


def host_words(hosts: Sequence[Host]) -> tuple[str, ...]:
    """Return hosts as they are stored: ``h1:2``, or ``h1`` without a slot count."""
    return tuple(host.name if host.slots is None else f"{host.name}:{host.slots}" for host in hosts)


def _host(word: str) -> Host:
    name, _, slots = word.rpartition(":")
    return Host(name=name, slots=int(slots)) if name and slots.isdigit() else Host(name=word)


def _names(hosts: Sequence[Host] | None) -> str:
    if hosts is None:
        return "too few hosts"
    return ", ".join(host.name for host in hosts) or "this machine"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not given" if value in (None, "") else str(value)
