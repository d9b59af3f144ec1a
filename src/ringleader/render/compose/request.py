"""What was asked for, as a value; what is wrong with it is found by ``faults``. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ringleader.errors import Fault
from ringleader.plan.job import Host

FOLDER = "/etc/ringleader"
"""Where each container sees its own keys and configuration."""
SSH_CONFIG = "/etc/ssh/ssh_config"
"""The system's configuration of ssh in mpihead is ours: so every ssh and every MPI finds the nodes."""
ROOT_PORT = 33
"""Not 22, which the host's own sshd holds on the host's network."""
USER_PORT = 2233
"""Below 1024 only root may listen on the host's network."""


class Target(StrEnum):
    """What starts the containers."""

    ONE_HOST = "one-host"
    """docker compose, all containers on one host."""
    HOSTS = "hosts"
    """docker compose on several hosts: one container and one compose file on each."""
    SWARM = "swarm"
    """docker stack deploy: a swarm places the containers."""


class Network(StrEnum):
    """Which network the containers are in."""

    HOST = "host"
    """The host's own: what RDMA over Ethernet needs."""
    BRIDGE = "bridge"
    """One of its own on this host; each container has an address."""
    OVERLAY = "overlay"
    """Swarm's, over all its hosts."""


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A directory or file of the host that every container sees."""

    source: str
    """Absolute path on the host."""
    target: str
    """Absolute path in the containers."""
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class User:
    """Who runs sshd, and so the ranks."""

    uid: int = 0
    gid: int | None = None
    """``None``: the account's own group; for root: 0."""

    @property
    def is_root(self) -> bool:
        """Say whether sshd may listen below port 1024 on the host's network."""
        return self.uid == 0

    def __str__(self) -> str:
        if self.gid is None:
            return "0:0" if self.is_root else str(self.uid)
        return f"{self.uid}:{self.gid}"


@dataclass(frozen=True, kw_only=True)
class ComposeRequest:
    """An application as it was asked for."""

    image: str
    """With Ringleader, an MPI and OpenSSH in it."""
    name: str = "ringleader"
    """Of the compose project, or of the stack."""
    target: Target | None = None
    """``None``: ``HOSTS`` where hosts are named, else ``ONE_HOST``."""
    ranks: int | None = None
    """In all, where no hosts are named."""
    hosts: tuple[Host, ...] = ()
    """One container on each; the first has mpihead. A host without slots has ``slots``."""
    slots: int | None = None
    """Of each container; ``None``: one for each of its GPUs, else one."""
    gpus: int = 0
    """Of each container."""
    rdma: str = "none"
    """Name of an RDMA profile."""
    network: Network | None = None
    """``None``: the host's; in a swarm an overlay."""
    ssh_port: int | None = None
    """``None``: ``ROOT_PORT``, for others than root ``USER_PORT``."""
    mounts: tuple[Mount, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    """Variables of every container and of every session in it."""
    workdir: str = ""
    """Empty: the target of the first mount, else what the image says."""
    shm_size: str = "16g"
    """Limit of /dev/shm: nothing is taken until it is used."""
    user: User = User()
    wait: int = 300
    """Seconds that mpihead waits for the nodes' sshd."""
    faults: tuple[Fault, ...] = ()
    """Found while the request was being read; reported with all others."""
