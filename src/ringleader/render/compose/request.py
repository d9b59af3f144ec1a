"""What was asked for, as a value; what is wrong with it is found by ``faults``. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from ringleader.errors import Fault
from ringleader.option_fields import WrongValueError, option
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


_USER = re.compile(r"(\d{1,10})(?::(\d{1,10}))?", re.ASCII)
_LARGEST_ID = 2**32 - 2


def user_of(word: str) -> User:
    """Read ``root``, ``UID`` or ``UID:GID``: files are given to a number. Raises WrongValueError."""
    if word == "root":
        return User()
    match = _USER.fullmatch(word)
    if match is None:
        hint = "write root, or numbers as in 1000:1000; id -u and id -g say yours"
        raise WrongValueError(f"{word[:80]!r} is no user", hint)
    uid, gid = int(match[1]), None if match[2] is None else int(match[2])
    if max(uid, gid or 0) > _LARGEST_ID:
        raise WrongValueError(f"{word} is beyond the largest number of a user")
    return User(uid=uid, gid=gid)


@dataclass(frozen=True, kw_only=True)
class ComposeRequest:
    """An application as it was asked for, with the options of ``ringleader render compose``."""

    image: str = option("With Ringleader, an MPI and OpenSSH.", default="", required=True, metavar="IMAGE")
    ranks: int | None = option(
        "Ranks in all, in containers on one host.", *("-n", "--np"), called="-n", metavar="RANKS"
    )
    hosts: tuple[Host, ...] = ()
    """One container on each; the first has mpihead. A host without slots has ``slots``."""
    target: Target | None = option(
        "docker compose on one host, on several (one file for each), or a swarm. [default: hosts with "
        "--hosts, else one-host]",
        "--on",
        metavar="one-host|hosts|swarm",
        choices=tuple(Target),
        read=Target,
    )
    slots: int | None = option("Of each container. [default: one for each GPU, else one]", metavar="N")
    gpus: int = option("GPUs of each container. [default: 0]", default=0, metavar="N")
    rdma: str = option(
        "How containers come to NICs: none, host-network, efa, erdma. [default: none]",
        default="none",
        metavar="PROFILE",
    )
    network: Network | None = option(
        "bridge: its own network on one host, without RDMA. [default: host; in a swarm an overlay]",
        metavar="host|bridge",
        choices=tuple(Network),
        read=Network,
    )
    ssh_port: int | None = option(
        "Of the containers' sshd; several on one host's network count up from it. [default: 33, for "
        "others than root 2233]",
        metavar="PORT",
    )
    name: str = option("Of the application.", default="ringleader", metavar="NAME", show_default=False)
    """Also of the compose project, or of the stack."""
    mounts: tuple[Mount, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    """Variables of every container and of every session in it."""
    workdir: str = option("In the containers. [default: the first mount]", default="", metavar="DIR")
    """Empty, without mounts: what the image says."""
    shm_size: str = option("Limit of /dev/shm. [default: 16g]", default="16g", metavar="SIZE")
    """Nothing is taken until it is used."""
    user: User = option(
        "Who runs sshd and the ranks; needs an account in the image. [default: root]",
        default=User(),
        metavar="root|UID[:GID]",
        read=user_of,
    )
    wait: int = option("How long mpihead waits for the nodes. [default: 300]", default=300, metavar="SECONDS")
    faults: tuple[Fault, ...] = ()
    """Found while the request was being read; reported with all others."""
