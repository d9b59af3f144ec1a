"""What ``ringleader run --dry-run`` prints: everything that a launch would do, for people to read. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from ringleader.fabric.byte_size import byte_size
from ringleader.plan.job import Code, Family, Job, Mpi
from ringleader.plan.rank_placement import Plan, RankPlace
from ringleader.render.hostfile import ALIAS_END, mpi_name
from ringleader.render.mpirun_command import MpirunCommand
from ringleader.render.rank_environment import RankEnvironment, is_secret


def dry_run_text(
    *,
    job: Job,
    plan: Plan,
    mpi: Mpi,
    command: MpirunCommand,
    environment: Mapping[str, str],
    unset: Sequence[str] = (),
    ranks: Sequence[RankEnvironment],
    settings: Sequence[str] = (),
    check: Sequence[str] = (),
    containers: Mapping[str, str] | None = None,
    code: Sequence[str] = (),
) -> str:
    """Return the whole text.

    ``command`` starts the rank agents, with ``environment`` besides our variables and without those in
    ``unset``. ``ranks``: the environment of each. ``settings``: lines on the transports of each host.
    ``check``: lines on what is checked before the start.
    ``containers``: what runs the MPI's daemon in a container of another host, by its name.
    ``code``: lines of ``code_lines``.

    The values of variables whose names speak of secrets are not shown, as this text ends up in logs.
    """
    common, own = split_environments(ranks)
    origin = "embedded" if mpi.embedded else mpi.mpirun
    size, hosts = _count(plan.size, "rank"), _count(len(plan.hosts), "host")
    sections = [
        ("before the start: --check", list(check)),
        (f"plan: {size} on {hosts}, {mpi.family} {mpi.version} ({origin})", plan_table(plan, mpi.family)),
        ("code that is sent", list(code)),
        ("hostfile", command.hostfile.splitlines()),
        (
            "mpirun: its environment besides ours, then its argv",
            [*_lines(unset, dict(sorted(environment.items()))), shlex.join(command.argv)],
        ),
        (
            "containers of other hosts: what ssh runs there, followed by the command of the MPI's daemon",
            [f"{name}: {words}" for name, words in (containers or {}).items()],
        ),
        ("transports: variables that fit each host, and why", list(settings)),
        ("every rank: command", [_change_directory(job), shlex.join(job.command)]),
        (
            "every rank: environment",
            _lines(ranks[0].unset if ranks else (), common),
        ),
        (
            "rank by rank: environment",
            [
                f"{rank}: " + " ".join(_assignment(*item) for item in part.items())
                for rank, part in own.items()
            ],
        ),
    ]
    links = [f"{name} -> {target}" for name, target in sorted(command.links.items())]
    sections.append(("every rank: links in a directory in front of LD_LIBRARY_PATH", links))
    return "\n".join("\n".join([f"# {title}", *lines, ""]) for title, lines in sections if lines)


MOST_SHOWN = 20
"""Files that are shown, the largest ones."""


def code_lines(code: Code, sizes: Mapping[str, int], plan: Plan, rsync: Sequence[str]) -> list[str]:
    """Return what is sent and where. ``sizes``: bytes by path; ``rsync``: what sends it."""
    lines = [
        f"{_count(code.files, 'file')}, {byte_size(code.size)}, from {code.source}; digest {code.digest}"
    ]
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:MOST_SHOWN]
    lines += [f"  {name}  {byte_size(sizes[name])}" for name in largest]
    lines += [f"  and {len(sizes) - MOST_SHOWN} smaller ones"] if len(sizes) > MOST_SHOWN else []
    for host in plan.hosts:
        how = f"by {host.code_by}" if host.code_by else "is there already"
        place = f"{host.directory} {how}" if host.directory else "a copy on this machine"
        lines.append(f"{host.host.name}: {place}")
    by_rsync = any(host.code_by == "rsync" for host in plan.hosts)
    return [*lines, shlex.join(rsync)] if by_rsync else lines


def _change_directory(job: Job) -> str:
    return "cd (the copy of the code)" if job.code is not None else f"cd {shlex.quote(job.workdir)}"


def plan_table(plan: Plan, family: Family) -> list[str]:
    """Return one line a rank: rank, host:slot, cores, threads, GPU."""
    rows = [("rank", "host:slot", "cores", "threads", "gpu")]
    for place in plan.ranks:
        rows.append(
            (
                str(place.rank),
                _slot(plan, place, family),
                numbers(place.cpus) or "any",
                str(place.threads),
                place.gpu or "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def split_environments(
    environments: Sequence[RankEnvironment],
) -> tuple[dict[str, str], dict[int, dict[str, str]]]:
    """Split into what every rank has alike and, by rank, what differs."""
    if not environments:
        return {}, {}
    common = {
        name: value
        for name, value in environments[0].set.items()
        if all(other.set.get(name) == value for other in environments)
    }
    own = {
        rank: {name: value for name, value in environment.set.items() if name not in common}
        for rank, environment in enumerate(environments)
    }
    return common, {rank: part for rank, part in own.items() if part}


def numbers(values: Sequence[int]) -> str:
    """Write 0,1,2,5 as ``0-2,5``."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _slot(plan: Plan, place: RankPlace, family: Family) -> str:
    """Return host:slot, with the name under which the MPI knows the host where that is another."""
    name = plan.hosts[place.host_index].host.name
    user, at, bare = name.rpartition("@")
    shown = f"{user}{at}[{bare}]" if ":" in bare else name
    alias = mpi_name(name, family)
    known_as = f" ({alias})" if alias.endswith(ALIAS_END) else ""
    return f"{shown}:{place.local_rank}{known_as}"


def _lines(unset: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return what is unset and what is set, one variable a line."""
    return [*(f"unset {name}" for name in unset), *(_assignment(*item) for item in environment.items())]


def _assignment(name: str, value: str) -> str:
    if is_secret(name):
        return f"{name}=(not shown: {len(value)} characters)"
    return f"{name}={shlex.quote(value)}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
