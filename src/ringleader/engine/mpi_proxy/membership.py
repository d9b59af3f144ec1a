"""A rank's part in the generations of an elastic job: it joins one, leaves it, waits for the next.

The process keeps one connection to its host agent; each generation has its own memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ringleader.agents.elastic.commit_memory import CommitMemory
from ringleader.agents.elastic.generation_client import (
    INCARNATION,
    SLOT,
    SOCKET,
    AgentGoneError,
    Generation,
    LeaveError,
    RankConnection,
)
from ringleader.agents.elastic.generation_page import PageReader
from ringleader.engine.communicator import World
from ringleader.engine.engine_settings import seconds_of
from ringleader.engine.exceptions import HorovodInternalError, WorldError
from ringleader.engine.mpi_proxy.channel import Channel
from ringleader.engine.mpi_proxy.proxy_communicator import ProxyCommunicator

TIMEOUT = "RINGLEADER_ELASTIC_TIMEOUT"
"""Variable: seconds that a rank waits for its proxy."""
TIMEOUT_SECONDS = 600.0
WAIT_SECONDS = 60.0
"""One wait for a generation: another one follows, as long as the host agent lives."""


class Membership:
    """This rank's part in one generation."""

    def __init__(
        self,
        connection: RankConnection,
        order: Generation,
        commit_memory: CommitMemory,
        deadline_seconds: float,
    ) -> None:
        """Map what the generation shares; descriptors are closed."""
        self.commit_memory = commit_memory
        """The memory of this host for commits, which outlives ranks; one for all generations."""
        self.generation = order.number
        """Number of the generation; later ones are larger."""
        self.restore = order.restore
        """Number of the commit to resume from, 0 for none."""
        self.arrivals: list[Any] = [json.loads(words) for words in order.arrivals]
        """By rank, what it gave `ElasticRank.join`."""
        self._connection, self._entries_taken = connection, False
        page = self._page = PageReader(order.page_fd)
        self.updates, self.preparing, self.broken = page.updates, page.preparing, page.broken
        self.channel = Channel(
            order, connection, why_broken=self.why_broken, deadline_seconds=deadline_seconds
        )
        """The way to this rank's proxy."""
        order.close()

    def leave(self) -> None:
        """Let go of what the generation shares; what the page said last stays to be read."""
        self.channel.close()
        self._page.let_go()
        try:
            self._connection.detached(self.generation)
        except AgentGoneError:
            self._connection.close()

    def take_entries(self) -> list[Sequence[int]] | None:
        """Return of each rank the ``entry`` that it arrived with, once; None where not all of them gave one.

        All ranks get the same, so that those that get none can ask each other.
        """
        taken, self._entries_taken = self._entries_taken, True
        entries = [one["entry"] for one in self.arrivals]
        return None if taken or None in entries else entries

    def why_broken(self) -> str:
        """Return why the generation is over, empty while it is not."""
        why = self._page.why()
        if why is None:
            return "the host agent has ended" if self._connection.hung_up() else ""
        rank, code = why
        if rank is None:
            return f"an MPI proxy or a host of generation {self.generation} was lost"
        return f"rank {rank} has ended" + ("" if code is None else f" with exit code {code}")


class ElasticRank:
    """The elastic side of this process: its connection, and the generation that it is in."""

    def __init__(self) -> None:
        """Begin without a connection."""
        self._connection: RankConnection | None = None
        self._commit_memory: CommitMemory
        self.membership: Membership | None = None
        """The part in the present generation, None between two."""
        self._last = 0

    def join(self, environ: Mapping[str, str], arrival: Mapping[str, Any]) -> World:
        """Wait for the next generation and take part in it; return its ranks.

        ``arrival``: plain values that all of its ranks are to know of this one.

        SystemExit(0) where the job continues without this rank; `WorldError` where its host agent has gone;
        `HorovodInternalError` where one begins and breaks meanwhile: it has to be left then.
        """
        if self.membership is not None:
            raise HorovodInternalError("this rank is in a generation already")
        try:
            connection = self._connected(environ)
            connection.wait(
                after=self._last,
                commits=self._held(),
                reason="reset" if self._last else "start",
                arrival=json.dumps(arrival, separators=(",", ":")),
            )
            while (order := connection.next_generation(WAIT_SECONDS)) is None:
                pass  # the launcher has all deadlines, and the agent ends with it
        except LeaveError:
            raise SystemExit(0) from None
        except AgentGoneError as error:
            raise WorldError(f"hvd.init: {error}") from error
        self._last, hosts, slot = order.number, order.host_indexes, environ.get(SLOT, "")
        seconds = seconds_of(environ, TIMEOUT, TIMEOUT_SECONDS)
        self.membership = membership = Membership(connection, order, self._commit_memory, seconds)
        everybody = ProxyCommunicator(membership.channel, range(len(hosts)), order.rank, "all", hosts)
        connection.attached(order.number)
        return World(
            everybody=everybody,
            slot=int(slot) if slot.isdigit() else None,
            membership=membership,
            why_broken=membership.why_broken,
            sleep=membership.channel.sleep,
        )

    def _held(self) -> Sequence[int]:
        """Return the numbers of the commits that this host holds complete."""
        try:
            return self._commit_memory.held()
        except MemoryError:  # there is none, which the launcher learns
            return ()

    def _connected(self, environ: Mapping[str, str]) -> RankConnection:
        if self._connection is None or not self._connection.open:
            number = environ.get(INCARNATION, "")
            if not number.isdigit():
                raise WorldError(f"{SOCKET} is set but {INCARNATION} is {number!r}: not a rank's number")
            self._connection = connection = RankConnection(environ[SOCKET], int(number))
            self._commit_memory = CommitMemory(
                lambda nbytes: connection.commit_memory(nbytes)[1], connection.committed
            )
        return self._connection

    def forked(self) -> None:
        """In a forked child: let go of the connection, whose end tells the agent that the rank has ended."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self.membership = None

    def leave(self) -> None:
        """Take part no more: what is under way is not looked at again. Peers do not wait for it."""
        membership, self.membership = self.membership, None
        if membership is not None:
            membership.leave()


ELASTIC = ElasticRank()
"""A process is one rank of one job, so there is one holder of its part in it."""
