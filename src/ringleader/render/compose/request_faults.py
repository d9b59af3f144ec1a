"""What is wrong with a request, all of it at once, and what follows from words that were left out. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from unicodedata import category

from ringleader.errors import Fault
from ringleader.render.compose import rdma_devices
from ringleader.render.compose.request import ROOT_PORT, USER_PORT, ComposeRequest, Network, Target

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}", re.ASCII)
_SHM = re.compile(r"([1-9][0-9]{0,15})(b|k|m|g|kb|mb|gb)?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MOST = 1000
_LONGEST_WAIT = 86_400


def target_of(request: ComposeRequest) -> Target:
    """Return what starts the containers."""
    if request.target is not None:
        return request.target
    return Target.HOSTS if request.hosts else Target.ONE_HOST


def network_of(request: ComposeRequest) -> Network:
    """Return which network the containers are in."""
    if request.network is not None:
        return request.network
    return Network.OVERLAY if target_of(request) is Target.SWARM else Network.HOST


def port_of(request: ComposeRequest) -> int:
    """Return the port of mpihead's sshd."""
    if request.ssh_port is not None:
        return request.ssh_port
    return ROOT_PORT if request.user.is_root else USER_PORT


def slots_of(request: ComposeRequest) -> tuple[int, ...]:
    """Return the slots of each container, mpihead's first."""
    each = request.slots or request.gpus or 1
    if request.hosts:
        return tuple(host.slots or each for host in request.hosts)
    # One beyond the limit says that it is exceeded, however many were asked for.
    return (each,) * min((request.ranks or 0) // each, _MOST + 1)


def shm_bytes(text: str) -> int:
    """Return a size of /dev/shm in bytes. ValueError where it is none."""
    match = _SHM.fullmatch(text)
    if match is None:
        raise ValueError(text)
    unit = (match[2] or "").lower()
    return int(match[1]) * _UNITS[unit[:1]]


def faults_of(request: ComposeRequest) -> tuple[Fault, ...]:
    """Return everything that is wrong with a request."""
    return (
        *request.faults,
        *_word_faults(request),
        *_size_faults(request),
        *_host_faults(request),
        *_port_faults(request),
        *_nic_faults(request),
        *(_swarm_faults(request) if target_of(request) is Target.SWARM else ()),
    )


def _word_faults(request: ComposeRequest) -> Iterator[Fault]:
    if not _IMAGE.fullmatch(request.image) or "//" in request.image:
        hint = "write registry/name:tag, or registry/name@sha256:…"
        yield Fault(where="--image", what=f"{request.image[:80]!r} is no name of an image", hint=hint)
    if not _NAME.fullmatch(request.name):
        hint = "small letters, digits, hyphens, underscores; a letter or a digit first"
        yield Fault(where="--name", what=f"{request.name[:80]!r} is no name of an application", hint=hint)
    if not _SHM.fullmatch(request.shm_size):
        what = f"{request.shm_size[:80]!r} is not a size"
        yield Fault(where="--shm-size", what=what, hint="write 16g or 512m")
    if request.workdir and (not request.workdir.startswith("/") or not request.workdir.isprintable()):
        yield Fault(where="--workdir", what=f"{request.workdir[:80]!r} is no absolute path")
    for name, value in request.env:
        if any(category(c) in ("Cc", "Cs") and c != "\t" for c in value):
            what = "the value holds a line break or another control character, which no sshd can pass on"
            yield Fault(where=f"--env {name}", what=what, hint="put it into a file below a mount")


def _size_faults(request: ComposeRequest) -> Iterator[Fault]:
    each = request.slots or request.gpus or 1
    for option, count, least in (
        ("-n", request.ranks, 1),
        ("--slots", request.slots, 1),
        ("--gpus", request.gpus, 0),
        ("--wait", request.wait, 1),
    ):
        most = _LONGEST_WAIT if option == "--wait" else 1_000_000
        if count is not None and not least <= count <= most:
            yield Fault(where=option, what=f"{count} is not between {least} and {most}")
    if request.ranks is not None and request.hosts:
        hint = "the hosts' slots say how many ranks there are: leave out -n"
        yield Fault(where="-n and --hosts", what="only one of them can say how large it is", hint=hint)
    elif request.ranks is None and not request.hosts and not request.faults:
        hint = "-n 8 for containers on one host, --hosts node1:8,node2:8 for one container on each"
        yield Fault(where="-n", what="nobody says how many ranks there are", hint=hint)
    elif request.ranks is not None and each > 0 and request.ranks % each:
        what = f"{request.ranks} ranks are no multiple of {each}, the slots of each container"
        yield Fault(where="-n", what=what, hint="choose another -n, --slots or --gpus")
    if len(slots_of(request)) > _MOST:
        yield Fault(where="-n", what=f"more than {_MOST} containers", hint="give each more slots: --slots")


def _host_faults(request: ComposeRequest) -> Iterator[Fault]:
    target = target_of(request)
    if target is Target.HOSTS and not request.hosts and not request.faults:
        yield Fault(where="--on hosts", what="no hosts are named", hint="--hosts node1:8,node2:8")
    if target is Target.ONE_HOST and request.hosts:
        hint = "-n RANKS with --slots or --gpus says how many containers it has"
        yield Fault(where="--on one-host and --hosts", what="it is this host alone", hint=hint)
    folders: dict[str, str] = {}
    for host in request.hosts:
        where = f"--hosts {host.name}"
        if "@" in host.name:
            hint = "--user says who runs in all containers"
            yield Fault(where=where, what="every container has the same user", hint=hint)
        if "%" in host.name:
            yield Fault(where=where, what="an address with a zone means another host elsewhere")
        if len(request.hosts) > 1 and (host.name in ("localhost", "::1") or host.name.startswith("127.")):
            hint = "give the name that the other hosts know it by"
            yield Fault(where=where, what="it means another machine on each host", hint=hint)
        other = folders.setdefault(host.name.replace(":", "-").lower(), host.name)
        if other != host.name:
            yield Fault(where=where, what=f"its folder would be that of {other}", hint="name it otherwise")


def _port_faults(request: ComposeRequest) -> Iterator[Fault]:
    first, network = port_of(request), network_of(request)
    many = target_of(request) is Target.ONE_HOST and network is Network.HOST
    last = first + max(0, len(slots_of(request)) - 1) if many else first
    if not 1 <= first <= 65535:
        yield Fault(where="--ssh-port", what=f"{first} is no port number", hint="use 1 to 65535")
    elif last > 65535:
        what = f"the containers would take the ports {first} to {last}"
        yield Fault(where="--ssh-port", what=what, hint="the last port is 65535")
    elif first < 1024 and not request.user.is_root:
        hint = f"use {USER_PORT}, or --user root"
        yield Fault(where="--ssh-port", what=f"only root may listen at port {first}", hint=hint)


def _nic_faults(request: ComposeRequest) -> Iterator[Fault]:
    target, network = target_of(request), network_of(request)
    fault = rdma_devices.fault_of(request.rdma)
    if fault is not None:
        yield fault
    elif rdma_devices.needs_host(request.rdma) and network is Network.BRIDGE:
        what = f"{request.rdma} needs the host's network: a NIC's address is not in another one"
        yield Fault(where="--network bridge", what=what, hint="leave out --network")
    if network is Network.BRIDGE and target is Target.HOSTS:
        what = "containers of other hosts cannot be reached in it"
        yield Fault(where="--network bridge", what=what, hint="leave out --network, or use --on swarm")
    if network is Network.OVERLAY and target is not Target.SWARM:
        yield Fault(where="--network overlay", what="only a swarm has it", hint="--on swarm")


def _swarm_faults(request: ComposeRequest) -> Iterator[Fault]:
    """Say what docker stack deploy passes over without a word, or cannot say at all."""
    instead = "use --on hosts: one compose file for each host"
    if rdma_devices.fault_of(request.rdma) is None and rdma_devices.needs_host(request.rdma):
        what = "a swarm's services have no devices and not the host's network: docker stack ignores both"
        yield Fault(where=f"--rdma {request.rdma}", what=what, hint=instead)
    if request.gpus:
        what = "a swarm knows GPUs only as generic resources that each daemon was told of"
        yield Fault(where="--gpus", what=what, hint=instead)
    if request.network is not None and request.network is not Network.OVERLAY:
        what = "docker stack ignores network_mode: services are in an overlay network"
        yield Fault(where=f"--network {request.network}", what=what, hint=instead)
