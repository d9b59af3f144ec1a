"""What a framework may bring beside the arithmetic: transports of its own.

Arrays in host memory are carried by the transports of this package. A framework can carry arrays on devices,
and host arrays too where the user asks for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ringleader.engine.launch_order import LaunchOrder
from ringleader.engine.reduction_kernels import Kernels
from ringleader.engine.traffic import GroupTraffic

if TYPE_CHECKING:
    from ringleader.engine.group_communicators import RankLayout
    from ringleader.engine.mpi_calls import MpiCalls
    from ringleader.engine.operations import Work
    from ringleader.engine.peer_wait import PeerWait
    from ringleader.engine.transports.transport import Region, Transport


@dataclass(frozen=True, kw_only=True)
class TransportContext:
    """The ranks that a transport is for, and what is there already."""

    ranks: RankLayout
    """Who this rank is in the group."""
    peer_wait: PeerWait
    """How this rank waits."""
    deadline_seconds: float
    """The most that a single operation may last."""
    mpi_calls: MpiCalls | None = None
    """MPI's calls over the group, None for a rank that is alone or kept apart."""
    host: Transport
    """Carries the group's arrays in host memory."""
    requested: str = ""
    """Transport that the user asks for, empty for the best one."""
    traffic: GroupTraffic = field(default_factory=GroupTraffic)
    """Counts what it carries."""
    number: int = 0
    """Number of the group's process set, 0 for all ranks."""
    generation: int = 0
    """Of an elastic job's generations the one in which the ranks are; 0 in other jobs."""
    launch_order: LaunchOrder = field(default_factory=LaunchOrder)
    """In which order this process launches work on its devices, over all groups."""


class DeviceTransport(Protocol):
    """Carries arrays on devices. Devices work behind the host's back, so it is also notified of moments."""

    @property
    def name(self) -> str:
        """Return the transport in use, as the timeline knows it; empty before the first operation."""

    def kind_of(self, place: str) -> str:
        """Return the kind of the device ``place`` (the framework's word), as signatures name it."""

    def capturing(self) -> bool:
        """Return whether what this thread does on devices is only recorded, to be done later without us."""

    def submitted(self, work: Work) -> None:
        """Note, in the thread that submits ``work``, what its data depends on.

        `ValueError` where the device cannot be used.
        """

    def execute(self, work: Work) -> None:
        """Carry out a work of any kind that has data; all ranks agree on it and do the same."""

    def execute_together(self, works: Sequence[Work]) -> None:
        """Carry out several allreduces that are alike but for their shapes."""

    @property
    def launches(self) -> bool:
        """Return whether work is launched and not waited for, so that sequences are possible.

        Equal on all ranks once they have carried out one operation.
        """

    def written(self, work: Work) -> None:
        """Note, in the thread that writes it, that a part of what `launch` will exchange is there."""

    def launch(self, work: Work) -> None:
        """Launch the next exchange of a sequence that a ``launch`` work has granted, from any thread."""

    def end_sequence(self, launched: Sequence[Work] = ()) -> None:
        """Note that all of a sequence has been launched; what this thread does next comes after it."""

    def delivered(self, work: Work) -> None:
        """Have what this thread does next come after ``work``, which is done."""

    def register(self, count: int, dtype: str, place: str) -> Region:
        """Make memory for ``count`` elements on the device ``place`` of the framework. Collective."""

    def cut(self, region: Region, start: int, count: int) -> Region:
        """Return a part of a registered region, as `Transport.cut` does."""

    def close(self, *, together: bool) -> None:
        """Let go of everything; without ``together`` what is under way is given up."""


class FrameworkAdapter(Kernels, Protocol):
    """All that a framework brings."""

    def host_transport(self, context: TransportContext) -> Transport:
        """Return the framework's own transport for arrays in host memory, for users who ask for it."""

    def device_transport(self, context: TransportContext) -> DeviceTransport | None:
        """Return what carries the framework's arrays on devices; nothing is set up before the first one.

        None where the framework's arrays are all in host memory.
        """
