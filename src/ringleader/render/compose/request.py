"""What was asked for, everything that is wrong with it, and what follows from words that were left out. Pure.

``application`` has what is decided by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from unicodedata import category

from ringleader.errors import Fault
from ringleader.option_fields import WrongValueError, option
from ringleader.plan.job import Host
from ringleader.render.rdma_profiles import NONE, PROFILES, Multus, Profile, Way

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
        raise WrongValueError(f"{word[:80]!r} is not a user", hint)
    uid, gid = int(match[1]), None if match[2] is None else int(match[2])
    if max(uid, gid or 0) > _LARGEST_ID:
        raise WrongValueError(f"{word} is beyond the largest number of a user")
    return User(uid=uid, gid=gid)


@dataclass(frozen=True, kw_only=True)
class ComposeRequest:
    """An application as it was asked for, with the options of ``ringleader render compose``."""

    image: str = option(
        "Image with Ringleader, an MPI and OpenSSH.", default="", required=True, metavar="IMAGE"
    )
    ranks: int | None = option(
        "Number of ranks, in containers on one host.", *("-n", "--np"), called="-n", metavar="RANKS"
    )
    hosts: tuple[Host, ...] = ()
    """One container on each; the first has mpihead. A host without slots has ``slots``."""
    target: Target | None = option(
        "docker compose on one host, docker compose on several (a file for each), or a swarm. [default: "
        "hosts with --hosts, else one-host]",
        "--on",
        metavar="one-host|hosts|swarm",
        choices=tuple(Target),
        read=Target,
    )
    slots: int | None = option("Slots per container. [default: one per GPU, else one]", metavar="N")
    gpus: int = option("GPUs per container. [default: 0]", default=0, metavar="N")
    rdma: str = option(
        "How containers get NICs: none, host-network, efa, erdma. [default: none]",
        default=NONE,
        metavar="NIC-PROFILE",
    )
    network: Network | None = option(
        "Network of the containers; bridge: a separate one on one host, without RDMA. [default: host; "
        "overlay in a swarm]",
        "--network-mode",
        old=("--network",),
        metavar="host|bridge",
        choices=tuple(Network),
        read=Network,
    )
    ssh_port: int | None = option(
        "Port of sshd; containers that share a host's network use the following ports. [default: 33; 2233 "
        "if --user is not root]",
        metavar="PORT",
    )
    name: str = option(
        "Name of the compose project, or of the stack. [default: ringleader]",
        "--project-name",
        old=("--name",),
        default="ringleader",
        metavar="NAME",
    )
    """Also of the compose project, or of the stack."""
    mounts: tuple[Mount, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    """Variables of every container and of every session in it."""
    workdir: str = option(
        "Directory in the containers. [default: the first mount]", default="", metavar="DIR"
    )
    """Empty, without mounts: what the image says."""
    shm_size: str = option("Size limit of /dev/shm. [default: 16g]", default="16g", metavar="SIZE")
    """Nothing is taken until it is used."""
    user: User = option(
        "User that runs sshd and the ranks; needs an account in the image. [default: root]",
        default=User(),
        metavar="root|UID[:GID]",
        read=user_of,
    )
    wait: int = option("Time mpihead waits for the nodes. [default: 300]", default=300, metavar="SECONDS")
    faults: tuple[Fault, ...] = ()
    """Found while the request was being read; reported with all others."""

    @property
    def chosen_target(self) -> Target:
        """What starts the containers."""
        return self.target or (Target.HOSTS if self.hosts else Target.ONE_HOST)

    @property
    def chosen_network(self) -> Network:
        """Which network the containers are in."""
        usual = Network.OVERLAY if self.chosen_target is Target.SWARM else Network.HOST
        return self.network or usual

    @property
    def shares_ports(self) -> bool:
        """Say whether the containers share one host's network: each has its own port on loopback."""
        return self.chosen_target is Target.ONE_HOST and self.chosen_network is Network.HOST

    @property
    def first_port(self) -> int:
        """Port of mpihead's sshd."""
        usual = ROOT_PORT if self.user.is_root else USER_PORT
        return usual if self.ssh_port is None else self.ssh_port

    @property
    def slots_of_one(self) -> int:
        """Slots of a container whose host does not say its own."""
        return self.slots or self.gpus or 1

    @property
    def all_slots(self) -> tuple[int, ...]:
        """Slots of each container, mpihead's first."""
        if self.hosts:
            return tuple(host.slots or self.slots_of_one for host in self.hosts)
        # One beyond the limit says that it is exceeded, however many were asked for.
        return (self.slots_of_one,) * min((self.ranks or 0) // self.slots_of_one, _MOST + 1)


# --- NICs: compose knows device files and the host's network; claims, Multus' networks and resources of
# device plugins are Kubernetes' own, so a profile that needs those is refused.

OF_MACHINES = ("efa", "erdma")
"""Profiles of a cloud's NICs, which its machines have without Kubernetes too: their device plugin mounts
/dev/infiniband and nothing more, and that compose can do itself. Huge pages are the host's."""


def known_profiles() -> tuple[str, ...]:
    """Return the names of the RDMA profiles that compose can express."""
    return tuple(name for name, profile in PROFILES.items() if not _obstacle(profile))


def _obstacle(profile: Profile) -> str:
    """Say what of a profile only Kubernetes has; empty: nothing."""
    if profile.way is Way.CLAIM:
        return "it claims devices (DRA), which only Kubernetes' scheduler can give"
    if profile.multus is Multus.MUST:
        return "it needs further networks in the container (Multus), which only Kubernetes has"
    if profile.way is Way.PLUGIN and profile.name not in OF_MACHINES:
        resource = profile.resource or profile.seen[0]
        return f"it stands on the resource {resource} of a Kubernetes device plugin"
    return ""


# --- what is wrong ----------------------------------------------------------------------------------------

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}", re.ASCII)
_SHM = re.compile(r"([1-9][0-9]{0,15})(b|k|m|g|kb|mb|gb)?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MOST = 1000
_LONGEST_WAIT = 86_400

Found = Iterator[tuple[str, str, str]]
"""Faults: option, what is wrong, what to write instead."""


def shm_bytes(text: str) -> int:
    """Return a size of /dev/shm in bytes. ValueError where it is none."""
    match = _SHM.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNITS[(match[2] or "").lower()[:1]]


def faults_of(request: ComposeRequest) -> tuple[Fault, ...]:
    """Return everything that is wrong with a request."""
    found = (
        *_words(request),
        *_sizes(request),
        *_hosts(request),
        *_ports(request),
        *_nics_and_networks(request),
        *(_swarm(request) if request.chosen_target is Target.SWARM else ()),
    )
    return (*request.faults, *(Fault(where=where, what=what, hint=hint) for where, what, hint in found))


def _words(request: ComposeRequest) -> Found:
    if not _IMAGE.fullmatch(request.image) or "//" in request.image:
        hint = "write registry/name:tag, or registry/name@sha256:…"
        yield "--image", f"{request.image[:80]!r} is not a name of an image", hint
    if not _NAME.fullmatch(request.name):
        hint = "small letters, digits, hyphens, underscores; a letter or a digit first"
        yield "--project-name", f"{request.name[:80]!r} is not a name for a project", hint
    if not _SHM.fullmatch(request.shm_size):
        yield "--shm-size", f"{request.shm_size[:80]!r} is not a size", "write 16g or 512m"
    if request.workdir and (not request.workdir.startswith("/") or not request.workdir.isprintable()):
        yield "--workdir", f"{request.workdir[:80]!r} is not an absolute path", ""
    for name, value in request.env:
        if any(category(c) in ("Cc", "Cs") and c != "\t" for c in value):
            what = "the value holds a line break or another control character, which no sshd can pass on"
            yield f"-x {name}", what, "put it into a file below a mount"


def _sizes(request: ComposeRequest) -> Found:
    each, ranks = request.slots_of_one, request.ranks
    for option_, count, least, most in (
        ("-n", ranks, 1, 1_000_000),
        ("--slots", request.slots, 1, 1_000_000),
        ("--gpus", request.gpus, 0, 1_000_000),
        ("--wait", request.wait, 1, _LONGEST_WAIT),
    ):
        if count is not None and not least <= count <= most:
            yield option_, f"{count} is not between {least} and {most}", ""
    if ranks is not None and request.hosts:
        hint = "the hosts' slots say how many ranks there are: leave out -n"
        yield "-n and --hosts", "only one of them can say how large it is", hint
    elif ranks is None and not request.hosts and not request.faults:
        hint = "-n 8 for containers on one host, --hosts node1:8,node2:8 for one container on each"
        yield "-n", "nobody says how many ranks there are", hint
    elif ranks is not None and each > 0 and ranks % each:
        what = f"{ranks} ranks are no multiple of {each}, the slots of each container"
        yield "-n", what, "choose another -n, --slots or --gpus"
    if len(request.all_slots) > _MOST:
        yield "-n", f"more than {_MOST} containers", "give each more slots: --slots"


def _hosts(request: ComposeRequest) -> Found:
    target = request.chosen_target
    if target is Target.HOSTS and not request.hosts and not request.faults:
        yield "--on hosts", "no hosts are named", "--hosts node1:8,node2:8"
    if target is Target.ONE_HOST and request.hosts:
        hint = "-n RANKS with --slots or --gpus says how many containers it has"
        yield "--on one-host and --hosts", "it is this host alone", hint
    folders: dict[str, str] = {}
    for host in request.hosts:
        where = f"--hosts {host.name}"
        if "@" in host.name:
            yield where, "every container has the same user", "--user says who runs in all containers"
        if "%" in host.name:
            yield where, "an address with a zone means another host elsewhere", ""
        if len(request.hosts) > 1 and (host.name in ("localhost", "::1") or host.name.startswith("127.")):
            hint = "give the name that the other hosts know it by"
            yield where, "it means another machine on each host", hint
        other = folders.setdefault(host.name.replace(":", "-").lower(), host.name)
        if other != host.name:
            yield where, f"its folder would be that of {other}", "name it otherwise"


def _ports(request: ComposeRequest) -> Found:
    first = request.first_port
    last = first + max(0, len(request.all_slots) - 1) if request.shares_ports else first
    if not 1 <= first <= 65535:
        yield "--ssh-port", f"{first} is not a port number", "use 1 to 65535"
    elif last > 65535:
        yield "--ssh-port", f"the containers would take the ports {first} to {last}", "the last port is 65535"
    elif first < 1024 and not request.user.is_root:
        yield "--ssh-port", f"only root may listen at port {first}", f"use {USER_PORT}, or --user root"


def _nics_and_networks(request: ComposeRequest) -> Found:
    rdma, target, network = request.rdma, request.chosen_target, request.chosen_network
    if rdma not in PROFILES:
        yield (
            "--rdma",
            f"there is no RDMA profile {rdma[:80]!r}",
            f"compose knows: {', '.join(known_profiles())}",
        )
    elif obstacle := _obstacle(PROFILES[rdma]):
        hint = "--rdma host-network gives each container all NICs of its host"
        yield f"--rdma {rdma}", f"compose cannot express it: {obstacle}", hint
    elif rdma != NONE and network is Network.BRIDGE:
        what = f"{rdma} needs the host's network: a NIC's address is not in another one"
        yield "--network-mode bridge", what, "leave out --network-mode"
    if network is Network.BRIDGE and target is Target.HOSTS:
        what = "containers of other hosts cannot be reached in it"
        yield "--network-mode bridge", what, "leave out --network-mode, or use --on swarm"
    if network is Network.OVERLAY and target is not Target.SWARM:
        yield "--network-mode overlay", "only a swarm has it", "--on swarm"


def _swarm(request: ComposeRequest) -> Found:
    """Say what docker stack deploy passes over without a word, or cannot say at all."""
    instead = "use --on hosts: one compose file for each host"
    if request.rdma != NONE and request.rdma in known_profiles():
        what = "a swarm's services have no devices and not the host's network: docker stack ignores both"
        yield f"--rdma {request.rdma}", what, instead
    if request.gpus:
        yield "--gpus", "a swarm knows GPUs only as generic resources of each daemon", instead
    if request.network not in (None, Network.OVERLAY):
        what = "docker stack ignores network_mode: services are in an overlay network"
        yield f"--network-mode {request.network}", what, instead
