"""What a profile says: one way in which a cluster gives NICs to Pods, as a value. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Pairs = tuple[tuple[str, str], ...]
"""Names with their values, in order."""


class Way(StrEnum):
    """By what a container comes to its NICs."""

    NOTHING = "nothing"
    """It gets none."""
    PLUGIN = "plugin"
    """A device plugin: an extended resource in the container's limits."""
    CLAIM = "claim"
    """Dynamic resource allocation: a claim of the Pod."""
    HOST = "host"
    """The host's own network and device files."""


class Counts(StrEnum):
    """What the number of a profile's resource means."""

    NICS = "nics"
    """NICs or virtual functions, each taken from the node."""
    SLOT = "slot"
    """A place at every NIC of the node: one is enough, more give nothing."""
    CONFIGURED = "configured"
    """One or the other, as the cluster's plugin is configured."""
    PAIRS = "pairs"
    """Pairs of a GPU and a NIC; NICs alone where no GPU is asked for."""
    NOTHING = "nothing"
    """There is nothing to count."""


class Multus(StrEnum):
    """Whether Pods need networks besides the cluster's own."""

    NEVER = "never"
    MAY = "may"
    MUST = "must"


class Spread(StrEnum):
    """Where the workers of one job may stand."""

    EVEN = "even"
    """As evenly over the nodes as the scheduler can: topology spread, never a reason to wait."""
    APART = "apart"
    """Never two on a node: anti-affinity."""
    NONE = "none"
    """Wherever the scheduler puts them."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One way in which a cluster gives NICs to Pods."""

    name: str
    summary: str
    """In one line, for whom it is."""
    way: Way
    counts: Counts
    resource: str = ""
    """Extended resource; empty where each cluster has its own name for it, or none is needed."""
    seen: tuple[str, ...] = ()
    """Names of the resource in public manifests: what to look for in a node's ``allocatable``."""
    multus: Multus = Multus.NEVER
    network: str = ""
    """The network's name where it is always the same one."""
    more: Pairs = ()
    """Further resources that a worker needs with it."""
    env: Pairs = ()
    """Variables that belong to this way, and to no other."""
    multus_env: Pairs = ()
    """Variables that belong to it once a network of Multus is attached."""
    ipc_lock: bool = True
    """Verbs lock the memory that NICs write to, and Kubernetes has no field for ``ulimit -l``."""
    privileged: bool = False
    """Without a device plugin nothing else opens the host's device files."""
    host_paths: tuple[str, ...] = ()
    """Directories of the host that the container sees at the same path."""
    host_network: bool = False
    ssh_port: int | None = None
    """The workers' sshd, where the host's own holds port 22."""
    shm_size: str = "64Gi"
    """Limit of /dev/shm: nothing is taken until it is used, and it counts against the memory limit."""
    spread: Spread = Spread.EVEN
    is_mellanox: bool = True
    """Whether node-feature-discovery's own rules know such nodes: they look for the PCI vendor 15b3."""
    advice: str = ""
    """What somebody who takes this profile is told once."""
    source: str
    """The fact that it rests on."""
    unverified: str = ""
    """What of it was not checked on hardware or in a source; empty: nothing."""
