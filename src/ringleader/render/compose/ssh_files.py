"""What sshd and ssh are told, and the hostfile. Pure.

Host keys are ours too, so every one is known and checked from the first connection on. The key that opens
the containers lies in mpihead alone; a container has its own host key and nobody else's.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringleader.plan.job import Family
from ringleader.render.compose.application import LOOPBACK, Application, Container
from ringleader.render.compose.request import FOLDER
from ringleader.render.hostfile import mpi_name

LOGIN_KEY = "id_ed25519"
HOST_KEY = "host_key"


def hostfile(application: Application) -> str:
    """Return Open MPI's hostfile, mpihead first."""
    return "".join(f"{one.name} slots={one.slots}\n" for one in application.containers)


def ssh_config(application: Application) -> str:
    """Return ssh's configuration in mpihead: how each container is reached; other hosts are as they were."""
    lines = ["# How ssh and every MPI in mpihead reach the containers of this application."]
    for one in application.containers:
        lines += [f"Host {' '.join(_names(one))}", f"    HostName {one.address}", f"    Port {one.port}"]
    every = [name for one in application.containers for name in _names(one)]
    return "\n".join(
        [
            *lines,
            f"Host {' '.join(every)}",
            f"    IdentityFile {FOLDER}/{LOGIN_KEY}",
            "    IdentitiesOnly yes",
            f"    UserKnownHostsFile {FOLDER}/known_hosts",
            "    GlobalKnownHostsFile /dev/null",
            "    StrictHostKeyChecking yes",
            "    UpdateHostKeys no",
            "    CheckHostIP no",
            "    PreferredAuthentications publickey",
            "    BatchMode yes",
            "    ConnectTimeout 10",
            "",
        ]
    )


def known_hosts(application: Application, public_keys: Sequence[str]) -> str:
    """Return which key each container's sshd has; ``public_keys`` are in the order of the containers."""
    pairs = zip(application.containers, public_keys, strict=True)
    return "".join(f"{_door(one)} {_bare(key)}\n" for one, key in pairs)


def authorized_keys(public_key: str) -> str:
    """Return who may log in: mpihead, to start processes and for nothing else."""
    return f"restrict,pty {_bare(public_key)} mpihead\n"


def sshd_config(application: Application, container: Container) -> str:
    """Return the configuration of a container's sshd."""
    lines = [f"Port {container.port}"]
    if application.on_loopback:
        lines.append(f"ListenAddress {LOOPBACK}")
    lines += [
        f"HostKey {FOLDER}/{HOST_KEY}",
        f"AuthorizedKeysFile {FOLDER}/authorized_keys",
        "AuthenticationMethods publickey",
        "PasswordAuthentication no",
        "PermitRootLogin prohibit-password",
        "# The files are mounted read-only and belong to whoever made them on the host.",
        "StrictModes no",
        "# PAM would lower the limit of locked memory that the container has.",
        "UsePAM no",
        "PidFile none",
        "AllowTcpForwarding no",
        "AllowAgentForwarding no",
        "X11Forwarding no",
        "PermitTunnel no",
        "UseDNS no",
        "PrintMotd no",
        "PrintLastLog no",
        "# A launch opens many sessions at once.",
        "MaxStartups 200:30:400",
        "MaxSessions 200",
    ]
    if application.env:
        words = " ".join(_assigned(name, value) for name, value in application.env)
        lines += ["# Sessions have nothing of the container's environment but this.", f"SetEnv {words}"]
    return "\n".join(lines) + "\n"


def _names(container: Container) -> list[str]:
    """Return every name that an MPI may give to ssh: aliases stand for names that it cannot read."""
    aliases = {mpi_name(container.name), mpi_name(container.name, Family.OPENMPI4)} - {container.name}
    return [container.name, *sorted(aliases)]


def _door(container: Container) -> str:
    """Return a container in the notation of known_hosts."""
    return container.address if container.port == 22 else f"[{container.address}]:{container.port}"


def _bare(public_key: str) -> str:
    """Return type and key without a comment."""
    return " ".join(public_key.split()[:2])


def _assigned(name: str, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{name}={escaped}"'
