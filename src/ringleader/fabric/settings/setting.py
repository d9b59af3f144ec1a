"""Settings of transports as values: what is set and why, and what is not set and why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

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


def chosen(
    variable: str, value: str, reason: str, library: str, *, rdma: bool = False, **more: Any
) -> Settings:
    """Return one setting; ``rdma``: it steers to RDMA; ``more``: further fields of ``Setting``."""
    setting = Setting(
        variable=variable, value=value, reason=reason, library=library, steers_to_rdma=rdma, **more
    )
    return Settings(settings=(setting,))


def unset(variable: str, reason: str, *, rdma: bool = True) -> Settings:
    """Return that a variable is not set, and why."""
    return Settings(not_set=(UnsetVariable(variable=variable, reason=reason, steers_to_rdma=rdma),))


def left_to_the_user(variable: str, reason: str) -> Settings:
    """Return that only the user can know the value of a variable about RDMA."""
    return Settings(left_to_the_user=(UnsetVariable(variable=variable, reason=reason, steers_to_rdma=True),))


LOSSLESS_CLASS = "on RoCE it is 4 times the DSCP of the network's lossless class, which the switches decide"
"""Why a traffic class is left to the user."""


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
