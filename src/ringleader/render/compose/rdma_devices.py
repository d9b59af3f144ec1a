"""Which RDMA profiles a container of compose can have, and what it gets by them. Pure.

Compose knows device files and the host's network; claims, Multus' networks and resources of device plugins
are Kubernetes' own. So a profile that stands on those is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.errors import Fault
from ringleader.render.rdma_profiles import NONE, PROFILES, Multus, Pairs, Profile, Way

DEVICES = "/dev/infiniband"
"""Directory of uverbs and rdma_cm: the device files of every kind of NIC that verbs know."""
OF_MACHINES = ("efa", "erdma")
"""Profiles of a cloud's NICs, which its machines have without Kubernetes too: their device plugin mounts
``DEVICES`` and nothing more, and that compose can do itself. Huge pages are the host's."""
_INSTEAD = "--rdma host-network gives each container all NICs of its host"


@dataclass(frozen=True, kw_only=True)
class Nics:
    """What a container gets so that its ranks can use the host's NICs."""

    devices: tuple[str, ...] = ()
    """Paths that host and container have in common."""
    ipc_lock: bool = False
    """Memory that NICs write to is locked: without limit, and with the capability."""
    env: Pairs = ()


def known() -> tuple[str, ...]:
    """Return the names of the profiles that compose can express."""
    return tuple(name for name, profile in PROFILES.items() if not _obstacle(profile))


def fault_of(name: str) -> Fault | None:
    """Return why there is no such profile here; ``None``: there is."""
    profile = PROFILES.get(name)
    if profile is None:
        what = f"there is no RDMA profile {name[:80]!r}"
        return Fault(where="--rdma", what=what, hint=f"compose knows: {', '.join(known())}")
    obstacle = _obstacle(profile)
    if not obstacle:
        return None
    return Fault(where=f"--rdma {name}", what=f"compose cannot express it: {obstacle}", hint=_INSTEAD)


def nics(name: str) -> Nics:
    """Return what a container gets by a profile in which ``fault_of`` finds nothing wrong."""
    profile = PROFILES[name]
    if profile.way is Way.NOTHING:
        return Nics()
    return Nics(devices=profile.host_paths or (DEVICES,), ipc_lock=profile.ipc_lock, env=profile.env)


def needs_host(name: str) -> bool:
    """Say whether a profile needs the host's network and devices."""
    return name != NONE


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
