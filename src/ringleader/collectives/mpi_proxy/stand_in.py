"""What the engine has in place of mpi4py's MPI where an MPI proxy does MPI for this rank.

Names and arguments are mpi4py's, as far as the engine uses them. There is no state of MPI in this process.
"""

from __future__ import annotations

from typing import Any

from ringleader.collectives.mpi_proxy.communicators import ANY_SOURCE, IN_PLACE, Communicator, Window
from ringleader.collectives.mpi_proxy.datatypes import DATATYPE_OF, OPERATION_OF, Buffer, Info
from ringleader.collectives.mpi_proxy.requests import Channel, Request, Status
from ringleader.ranks.host_agent_client import Generation


class _Windows:
    """What mpi4py calls ``Win``."""

    @staticmethod
    def Allocate_shared(nbytes: int, unit: int, info: Any, comm: Communicator) -> Window:  # noqa: N802
        """Return ``nbytes`` of shared memory of each rank of a communicator on one host. Collective."""
        return comm.shared_memory(nbytes)


class StandIn:
    """MPI as a rank of an elastic job has it, for one generation."""

    proxied = True
    """Whether proxies do MPI for the ranks: then nothing may wait inside of it."""
    IN_PLACE = IN_PLACE
    ANY_SOURCE = ANY_SOURCE
    COMM_TYPE_SHARED = 0
    MODE_NOCHECK = 0
    THREAD_MULTIPLE = 3
    COMM_SELF = None
    """Only stands in calls that copy memory of this rank."""
    Request, Status, Info, Win, buffer = Request, Status, Info, _Windows, Buffer

    def __init__(
        self, channel: Channel, generation: Generation, membership: Any, slot: int | None = None
    ) -> None:
        """Make the communicator of all ranks of the generation. Collective over them."""
        self.membership = membership
        """This rank's part in the generation."""
        self.slot = slot
        """The number of its slot on its host, None where its launcher has not said it."""
        for name, datatype in DATATYPE_OF.items():
            setattr(self, name, datatype)
        for name, operation in OPERATION_OF.items():
            setattr(self, name, operation)
        hosts = generation.host_indexes
        everybody = range(len(hosts))
        self.COMM_WORLD = Communicator(channel, everybody, generation.rank, "all", hosts, with_duplicate=True)
        """All ranks of the generation."""

    def Query_thread(self) -> int:  # noqa: N802 - MPI's name
        """Return that any thread may call."""
        return self.THREAD_MULTIPLE
