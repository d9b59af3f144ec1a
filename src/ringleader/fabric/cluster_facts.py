"""What a Kubernetes cluster says of its nodes and a namespace, and what Pods with NICs need. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"
    """``NoSchedule``, ``NoExecute`` or ``PreferNoSchedule``."""

    def __str__(self) -> str:
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}"


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """A node, as the API server knows it."""

    name: str
    ready: bool
    schedulable: bool = True
    allocatable: Mapping[str, float] = field(default_factory=dict)
    """Resource → amount, in its base unit: NICs, GPUs, bytes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    kubelet: str = ""
    runtime: str = ""
    """``containerd://2.1.4``."""
    system: str = ""
    kernel: str = ""


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """Some nodes, and the namespace in which Pods would run on them."""

    namespace: str
    nodes: tuple[NodeFacts, ...]
    selector: str = ""
    """By which the nodes were chosen; empty: all of them."""
    pod_security: str | None = ""
    """Level that the namespace enforces; empty: it says nothing; ``None``: not readable."""
    networks: Mapping[str, bool | None] = field(default_factory=dict)
    """Network of Multus → whether it is there; ``None``: not readable."""


@dataclass(frozen=True, kw_only=True)
class NicNeeds:
    """What a Pod needs that gets NICs by a profile."""

    profile: str
    resource: str = ""
    """Extended resource; empty: none."""
    count: int = 0
    more: Mapping[str, float] = field(default_factory=dict)
    """Further resources → amount."""
    known_resources: tuple[str, ...] = ()
    """Names by which clusters know the resource."""
    networks: tuple[str, ...] = ()
    forbidden_below_privileged: tuple[str, ...] = ()
    """What Pod security levels other than ``privileged`` refuse: ``IPC_LOCK``, ``hostNetwork``."""
    is_mellanox: bool = False
    """Whether such nodes have NICs of the PCI vendor 15b3, which node-feature-discovery marks."""
