"""The ssh configuration of one job, used by the probe and by the MPI's own launcher alike. Pure.

One file says everything (port, key, sharing of connections, host key policy, aliases), so that the command
line that an MPI gives to ssh needs only ``-F FILE``. The user's own configuration is included last:
ssh takes the first value that it finds, so what was asked for on our command line wins over it, and
everything else in it (jump hosts, per-host users, keys) still holds.
"""

from __future__ import annotations

from collections.abc import Iterable

from ringleader.plan.job import Family, Host, Ssh
from ringleader.render.hostfile import bare_name, mpi_name, user_of


def quoted(value: str) -> str:
    """Return a value as OpenSSH reads it back: in double quotes where a bare word would be cut.

    Raises ValueError for a line break, which no ssh configuration can hold.
    """
    if any(c in value for c in "\n\r\0"):
        raise ValueError(f"an ssh configuration cannot hold {value!r}")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    plain = value and not any(c.isspace() or c in "#'=\"" for c in value)
    return escaped if plain else f'"{escaped}"'


def _path(path: str) -> str:
    """Return a path in which ssh expands nothing: ``%`` is its escape sign there."""
    return quoted(path.replace("%", "%%"))


def _included(path: str) -> str:
    """Return a path for Include, which takes patterns."""
    return quoted("".join(f"\\{c}" if c in "*?[]\\" else c for c in path))


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
    lines += [f"    Include {_included(path)}" for path in (user_config, system_config) if path is not None]
    return "\n".join(lines) + "\n"


def _every_host(ssh: Ssh) -> list[str]:
    """Return what was asked for, and what a connection that nobody looks at needs."""
    lines = [
        "    BatchMode yes",
        f"    ConnectTimeout {max(1, round(ssh.connect_timeout))}",
        "    ConnectionAttempts 1",
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
        lines += [f"    IdentityFile {_path(ssh.identity)}", "    IdentitiesOnly yes"]
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
