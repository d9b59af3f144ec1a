"""How each MPI and ssh reach a plan's hosts: the hostfile, and the ssh configuration of one job. Pure.

Every MPI reads another dialect and every one of them stumbles over something: Open MPI 4 refuses a node
called ``fe80::1`` or ``h_1`` (names must be letters, digits, dots and hyphens), Open MPI 5 refuses
``[fe80::1]`` and zones, Hydra takes the first colon for the start of the slot count, and none takes a user.
So a name that is not plain gets a plain alias in the hostfile, and the ssh configuration has where the alias
leads. That file has everything (port, key, sharing of connections, host key policy, aliases), so that the
command line that an MPI gives to ssh needs only ``-F FILE``. The user's own configuration is included last:
ssh takes the first value that it finds, so what was asked for on our command line wins over it, and all else
in it (jump hosts, per-host users, keys) still holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ringleader.errors import Fault, RequestError
from ringleader.plan.job import Family, Host, Ssh
from ringleader.plan.rank_placement import HostFacts, Plan

_PLAIN = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")


ALIAS_END = ".invalid"
"""Resolvers answer at once that there is no such name, so an MPI that asks does not wait."""


def bare_name(name: str) -> str:
    """Return the host without its user: ``alice@h1`` is ``h1``."""
    return name.rpartition("@")[2]


def user_of(name: str) -> str:
    """Return the user in ``alice@h1``; empty where there is none."""
    return name.rpartition("@")[0]


def mpi_name(name: str, family: Family | None = None) -> str:
    """Return what an MPI (``None``: any but Open MPI 4) gets instead of a host's name.

    That is the name itself where the MPI can read it: only the name itself finds its block in the user's ssh
    configuration. An alias ends in ``ALIAS_END`` and so can never be mistaken for another host.
    """
    bare = bare_name(name)
    if _PLAIN.fullmatch(bare) and not (family is Family.OPENMPI4 and "_" in bare):
        return bare
    # Reversible, so that two names never share an alias: a hyphen and everything unusual becomes x<hex>x.
    coded = "".join(c if c.isascii() and c.isalnum() and c != "x" else f"x{ord(c):x}x" for c in bare)
    return f"alias-{coded}{ALIAS_END}"


def hostfile_text(plan: Plan, family: Family) -> str:
    """Return the hostfile that gives exactly the plan's ranks.

    Open MPI: one line a host with as many slots as it has ranks; the arguments ``--map-by slot`` fill it
    host by host, ``--map-by slot --rank-by node`` number the same ranks node by node (``--map-by node`` is
    not used: Open MPI 5 fails to map hosts with unequal slots so).
    Hydra (MPICH, Intel MPI): it goes through the file in turns, taking ``:n`` ranks from each line, and
    needs no argument. It cannot number ranks node by node over hosts with unequal counts, since a host on
    two lines is two nodes to it: RequestError then.
    """
    names = [_name(facts, family) for facts in plan.hosts]
    counts = plan.counts()
    if family in (Family.OPENMPI4, Family.OPENMPI5) or not in_turns(plan):
        return host_lines(zip(names, counts, strict=True), family, is_limit=True)
    if len(set(counts)) > 1:
        raise RequestError(
            Fault(
                where="--map-by node",
                what=f"{family}'s launcher cannot number ranks node by node over hosts with unequal counts",
                hint="give every host equally many ranks, use --map-by slot, or use Open MPI",
            )
        )
    return host_lines(((name, 1) for name in names), family)


def host_lines(hosts: Iterable[tuple[str, int]], family: Family, *, is_limit: bool = False) -> str:
    """Return a hostfile of names, which the MPI must be able to read as they are, and their slots.

    ``is_limit``: an MPI that would put more ranks there fails instead (Open MPI; Hydra knows no limit).
    """
    if family in (Family.OPENMPI4, Family.OPENMPI5):
        limit = " max_slots=" if is_limit else ""
        return "".join(f"{name} slots={n}{limit}{n if limit else ''}\n" for name, n in hosts)
    return "".join(f"{name}:{n}\n" for name, n in hosts)


def _name(facts: HostFacts, family: Family) -> str:
    """Return a host's name for the MPI, by which its daemon must know the machine that it is on.

    Our own machine is not reached through ssh, so it must be a name in which every MPI sees its own machine:
    not an alias, not 127.0.1.1, which no interface has, and not its hostname with another domain: Open MPI
    compares whole names (see ``WHOLE_NAMES`` in ``mpirun_command``).
    """
    name = mpi_name(facts.host.name, family)
    seen = {"localhost", "127.0.0.1", facts.hostname, *facts.addresses}
    return "localhost" if facts.is_local and name not in seen else name


def in_turns(plan: Plan) -> bool:
    """Say whether the plan numbers its ranks node by node, not host after host."""
    order = [place.host_index for place in plan.ranks]
    return order != sorted(order)


def quoted(value: str) -> str:
    """Return a value as OpenSSH reads it back: in double quotes where a bare word would be cut.

    Raises ValueError for a line break, which no ssh configuration can hold.
    """
    if any(c in value for c in "\n\r\0"):
        raise ValueError(f"an ssh configuration cannot hold {value!r}")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    plain = value and not any(c.isspace() or c in "#'=\"" for c in value)
    return escaped if plain else f'"{escaped}"'


def ssh_config_text(
    *,
    ssh: Ssh,
    hosts: Iterable[Host],
    control_dir: str,
    user_config: str | None,
    system_config: str | None = "/etc/ssh/ssh_config",
    persist: int = 60,
) -> str:
    """Return the text of the job's ssh configuration.

    ``control_dir`` is a private directory with a short path (a socket's path holds about 100 bytes).
    ``user_config`` is the absolute path of the file to include last, ``None``: none. With ``-F`` ssh reads
    no other file, so the system's is included as well. ``persist`` is how many seconds a shared connection
    outlives its last use. The sockets of the hosts' connections have their numbers as names.
    """
    directory = control_dir.replace("%", "%%")
    lines = [
        line
        for number, host in enumerate(hosts)
        for line in _host_block(host, quoted(f"{directory}/{number}"))
    ]
    lines += [
        "Host *",
        *_every_host(ssh),
        "    ControlMaster auto",
        f"    ControlPath {quoted(f'{directory}/%C')}",  # of jump hosts
        f"    ControlPersist {persist}",
    ]
    # Include is in a Host block that always matches: it would be skipped inside one that does not.
    for path in (user_config, system_config):
        if path is not None:
            pattern = "".join(f"\\{c}" if c in "*?[]\\" else c for c in path)
            lines.append(f"    Include {quoted(pattern)}")
    return "\n".join(lines) + "\n"


def _every_host(ssh: Ssh) -> list[str]:
    """Return what was asked for, and what a connection that nobody looks at needs."""
    lines = [
        "    BatchMode yes",
        f"    ConnectTimeout {max(1, round(ssh.connect_timeout))}",
        f"    ConnectionAttempts {ssh.attempts}",
        f"    StrictHostKeyChecking {'accept-new' if ssh.accept_new else 'yes'}",
        "    ServerAliveInterval 5",
        "    ServerAliveCountMax 3",
        "    LogLevel ERROR",
        "    ForwardX11 no",
        "    ForwardAgent no",
        "    ClearAllForwardings yes",
        "    RequestTTY no",
    ]
    if ssh.port is not None:
        lines.append(f"    Port {ssh.port}")
    if ssh.identity is not None:
        # ssh expands nothing in it: ``%`` is its escape sign there.
        path = ssh.identity.replace("%", "%%")
        lines += [f"    IdentityFile {quoted(path)}", "    IdentitiesOnly yes"]
    return lines


def _host_block(host: Host, socket: str) -> list[str]:
    """Say where a host's aliases lead, which user its name carries, and where its shared connection is."""
    bare, user = bare_name(host.name), user_of(host.name)
    # Which MPI it will be is not asked here: an alias that nobody uses does no harm.
    aliases = {mpi_name(host.name), mpi_name(host.name, Family.OPENMPI4)} - {bare}
    block = [f"Host {' '.join([bare, *sorted(aliases)])}", f"    ControlPath {socket}"]
    if user:
        block.append(f"    User {quoted(user)}")
    for alias in sorted(aliases):
        # The host's key is looked up under HostName, so known_hosts needs no entry for the alias.
        block += [f"Host {alias}", f"    HostName {bare.replace('%', '%%')}"]
    return block
