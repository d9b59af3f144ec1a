"""An application with everything decided, and what each container sees at /etc/ringleader. Pure.

Host keys are ours too, so every one is known and checked from the first connection on. The key that opens
the containers is in mpihead alone; a container has its own host key and nobody else's.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ringleader.errors import refuse
from ringleader.plan.job import Family
from ringleader.render.compose.request import FOLDER, ComposeRequest, Network, Target, faults_of
from ringleader.render.hostfile import mpi_name
from ringleader.render.rdma_profiles import PROFILES, Profile

HEAD = "mpihead"
NODE = "mpinode"
LOOPBACK = "127.0.0.1"
LOGIN_KEY = "id_ed25519"
HOST_KEY = "host_key"
SSHD = "/usr/sbin/sshd"
TRY_SECONDS = 20
"""Given to one login: a login script that hangs must not hold up the others."""


@dataclass(frozen=True, kw_only=True)
class Container:
    """One service with one container."""

    service: str
    """``mpihead`` or ``mpinode-K``; also the name of its folder."""
    name: str
    """What hostfile and ssh call it: the service, or on several hosts the host."""
    address: str
    """Where its sshd is reached."""
    port: int
    """Of its sshd."""
    slots: int
    host: str = ""
    """The host it is bound to; empty: this one, or any of a swarm."""
    folder: str = ""
    """Directory of its compose file below the application's; empty: the application's own."""
    devices: tuple[int, ...] = ()
    """Numbers of its GPUs; empty: any ``gpus`` of the request."""


@dataclass(frozen=True, kw_only=True)
class Application:
    """One ``mpihead`` and its ``mpinode``s."""

    request: ComposeRequest
    """Without faults."""
    target: Target
    network: Network
    containers: tuple[Container, ...]
    """mpihead first. It takes ranks, as the others do."""
    nics: Profile
    env: tuple[tuple[str, str], ...]
    """With what the profile sets, unless the user sets it."""
    workdir: str
    """Empty: what the image says."""

    @property
    def head(self) -> Container:
        """The container in which people type."""
        return self.containers[0]

    @property
    def nodes(self) -> tuple[Container, ...]:
        """All others."""
        return self.containers[1:]

    @property
    def ready_file(self) -> str:
        """Path of the file in mpihead that says that all nodes have answered."""
        return f"/tmp/ringleader-{self.request.name}.ready"


def application(request: ComposeRequest) -> Application:
    """Decide everything that was left open. RequestError with every fault of the request."""
    refuse(faults_of(request))
    nics = PROFILES[request.rdma]
    return Application(
        request=request,
        target=request.chosen_target,
        network=request.chosen_network,
        containers=tuple(_container(request, index, slots) for index, slots in enumerate(request.all_slots)),
        nics=nics,
        env=tuple({**dict(nics.env), **dict(request.env)}.items()),
        workdir=request.workdir or (request.mounts[0].target if request.mounts else ""),
    )


def _container(request: ComposeRequest, index: int, slots: int) -> Container:
    target, port, gpus = request.chosen_target, request.first_port, request.gpus
    service = f"{NODE}-{index}" if index else HEAD
    host = request.hosts[index].name if request.hosts else ""
    name = host if target is Target.HOSTS else service
    return Container(
        service=service,
        name=name,
        address=LOOPBACK if request.shares_ports else name,
        port=port + index if request.shares_ports else port,
        slots=slots,
        host=host,
        folder=host.replace(":", "-") if target is Target.HOSTS else "",
        devices=tuple(range(index * gpus, (index + 1) * gpus)) if target is Target.ONE_HOST else (),
    )


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
    if application.request.shares_ports:
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


def start_script(application: Application, container: Container) -> str:
    """Return the script that a container runs; it needs a POSIX shell, ssh, sshd and ``timeout``.

    In mpihead it first waits until every node lets us in, and says whom it waits for; what it has waited for
    in vain ends the container with code 3.
    """
    waiting = _waiting(application) if container is application.head and application.nodes else ""
    ready = f": >{application.ready_file}\n" if container is application.head else ""
    return f"""\
#!/bin/sh
# Starts the sshd of {container.service}.
set -eu

say() {{
    echo "{container.service}: $*" >&2
}}

if ! id -un >/dev/null 2>&1; then
    say "user $(id -u) has no account in this image, and sshd lets in accounts only"
    exit 2
fi
for program in ssh timeout {SSHD}; do
    if ! command -v "$program" >/dev/null; then
        say "there is no $program in this image"
        exit 2
    fi
done
if [ "$(id -u)" = 0 ]; then
    mkdir -p /run/sshd
fi
if ! {SSHD} -t -f {FOLDER}/sshd_config; then
    say "sshd cannot start as user $(id -u): see the lines above"
    exit 2
fi
{waiting}{ready}exec {SSHD} -D -e -f {FOLDER}/sshd_config
"""


def _waiting(application: Application) -> str:
    names = " ".join(shlex.quote(one.name) for one in application.nodes)
    return f"""
rm -f {application.ready_file}
end=$(($(date +%s) + {application.request.wait}))
missing=
set -- {names}
for node; do
    told=
    until answer=$(timeout {TRY_SECONDS} ssh "$node" true 2>&1 </dev/null); do
        if [ "$(date +%s)" -ge "$end" ]; then
            say "no answer from $node within {application.request.wait} s: $answer"
            missing="$missing $node"
            break
        fi
        if [ -z "$told" ]; then
            say "waiting for $node: $answer"
            told=yes
        fi
        sleep 1
    done
done
if [ -n "$missing" ]; then
    say "given up, without:$missing"
    exit 3
fi
say "all nodes answer"
"""
