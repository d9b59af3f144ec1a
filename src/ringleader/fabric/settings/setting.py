"""Settings of transports as values: what is set and why, and what is not set and why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from ringleader.fabric.facts import HostFacts
from ringleader.fabric.port_selection import PortSelection
from ringleader.fabric.topology.nic_assignment import NicAssignment


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One variable for the ranks of a host."""

    variable: str
    value: str
    reason: str
    """One sentence without a full stop."""
    library: str
    """Who reads it: ``NCCL``, ``UCX``, ``libfabric``, ``Open MPI``, ``Intel MPI``, ``Gloo``."""
    steers_to_rdma: bool = False
    """It is of use only where RDMA works."""
    job_wide: bool = False
    """Hosts must have it alike, or their ranks do not find each other: it chooses a protocol."""
    rivals: tuple[str, ...] = ()
    """Variables beside which it must not or need not be set."""


@dataclass(frozen=True, kw_only=True)
class UnsetVariable:
    """A variable that is not set, although somebody may look for it."""

    variable: str
    """Empty: all that steer to RDMA."""
    reason: str
    steers_to_rdma: bool = False
    """It is of use only where RDMA works, and so is the reason."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is recommended for one host, or for one of its ranks."""

    settings: tuple[Setting, ...] = ()
    left_to_the_user: tuple[UnsetVariable, ...] = ()
    """What only the user can know: the traffic class of the network."""
    not_set: tuple[UnsetVariable, ...] = ()
    """What the library decides better by itself, what the user has set, or what cannot work here."""

    def __add__(self, other: Settings) -> Settings:
        """Return both, one after the other."""
        return Settings(
            **{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(Settings)}
        )

    @property
    def variables(self) -> dict[str, str]:
        """The variables as a mapping."""
        return {one.variable: one.value for one in self.settings}


@dataclass(frozen=True, kw_only=True)
class SettingInputs:
    """What the rules of each library look at."""

    facts: HostFacts
    ports: PortSelection
    user: Mapping[str, str] = field(default_factory=dict)
    """What the user has set, in whatever place."""
    nic: NicAssignment | None = None
    """The NIC of the local rank that is asked about; ``None``: all ranks of the host."""

    @property
    def misleading_ports(self) -> tuple[str, ...]:
        """Names of active ports that a library would take and should not."""
        return tuple(one.name for one in self.ports.left_out if one.is_active)
