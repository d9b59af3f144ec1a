"""A rank's part in the generations of an elastic job: it joins one, leaves it, waits for the next.

The process keeps one connection to its host agent; each generation has memory of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ringleader.agents.elastic.commit_memory import CommitMemory, CommitMemoryError
from ringleader.agents.elastic.generation_page import PageReader
from ringleader.agents.elastic.host_agent_client import (
    INCARNATION,
    SLOT,
    SOCKET,
    AgentGoneError,
    Generation,
    LeaveError,
    RankConnection,
)
from ringleader.engine.communicator import World
from ringleader.engine.exceptions import HorovodInternalError, WorldError
from ringleader.engine.mpi_proxy.proxy_communicator import ProxyCommunicator
from ringleader.engine.mpi_proxy.requests import Channel

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
        self.connection = connection
        """To the host agent."""
        self.order = order
        """What the launcher said of the generation."""
        self._page = PageReader(order.page_fd)
        self.arrivals: list[Any] = [json.loads(words) for words in order.arrivals]
        """By rank, what it gave `ElasticRank.join`."""
        self._entries_taken = False
        self.channel = Channel(
            order, connection, why_broken=self.why_broken, deadline_seconds=deadline_seconds
        )
        """The way to this rank's proxy."""
        order.close()

    @property
    def generation(self) -> int:
        """Return the number of the generation; later ones are larger."""
        return self.order.number

    @property
    def restore(self) -> int:
        """Return the number of the commit to go on from, 0 for none."""
        return self.order.restore

    def close(self) -> None:
        """Let go of what the generation shares; what the page said last stays to be read."""
        self.channel.close()
        self._page.let_go()

    def take_entries(self) -> list[Sequence[int]] | None:
        """Return of each rank the ``entry`` that it arrived with, once; None where not all of them gave one.

        All ranks get the same, so that those that get none can ask each other.
        """
        taken, self._entries_taken = self._entries_taken, True
        entries = [one["entry"] for one in self.arrivals]
        return None if taken or None in entries else entries

    def updates(self) -> tuple[int, int]:
        """Return how many updates of the hosts there were, and what the last one did (`ADDED` …)."""
        return self._page.updates()

    def preparing(self) -> bool:
        """Return whether an update of the hosts is being prepared, of which `updates` will tell."""
        return self._page.preparing()

    def broken(self) -> bool:
        """Return whether the generation is over because a member ended."""
        return self._page.broken()

    def why_broken(self) -> str:
        """Return why the generation is over, empty while it is not."""
        why = self._page.why()
        if why is None:
            return "the host agent has ended" if self.connection.hung_up() else ""
        rank, code = why
        if rank is None:
            return f"an MPI proxy or a host of generation {self.generation} was lost"
        return f"rank {rank} has ended" + ("" if code is None else f" with exit code {code}")


class ElasticRank:
    """The elastic side of this process: its connection, and the generation that it is in."""

    def __init__(self) -> None:
        """Begin without a connection."""
        self._connection: RankConnection | None = None
        self._pid = 0
        self.membership: Membership | None = None
        """The part in the present generation, None between two."""
        self._last = 0
        self._commit_memory: CommitMemory | None = None

    def join(self, environ: Mapping[str, str], arrival: Mapping[str, Any]) -> World:
        """Wait for the next generation and take part in it; return its ranks.

        ``arrival``: plain values that all of its ranks are to know of this one.

        SystemExit(0) where the job goes on without this rank; `WorldError` where its host agent has gone;
        `HorovodInternalError` where one begins and breaks meanwhile: it has to be left then.
        """
        if self.membership is not None:
            raise HorovodInternalError("this rank is in a generation already")
        seconds = _seconds(environ)
        try:
            connection, commit_memory = self._connected(environ)
            connection.wait(
                after=self._last,
                commits=self._held(commit_memory),
                reason="reset" if self._last else "start",
                arrival=json.dumps(arrival, separators=(",", ":")),
            )
            while (order := connection.next_generation(WAIT_SECONDS)) is None:
                pass  # the launcher has all deadlines, and the agent ends with it
        except LeaveError:
            raise SystemExit(0) from None
        except AgentGoneError as error:
            raise WorldError(f"hvd.init: {error}") from error
        self._last = order.number
        self.membership = membership = Membership(connection, order, commit_memory, seconds)
        channel, hosts, slot = membership.channel, order.host_indexes, environ.get(SLOT, "")
        everybody = ProxyCommunicator(
            channel, range(len(hosts)), order.rank, "all", hosts, with_duplicate=True
        )
        connection.attached(order.number)
        return World(
            everybody=everybody,
            slot=int(slot) if slot.isdigit() else None,
            membership=membership,
            why_broken=membership.why_broken,
            sleep=channel.sleep,
        )

    @staticmethod
    def _held(commit_memory: CommitMemory) -> Sequence[int]:
        """Return the numbers of the commits that this host holds complete."""
        try:
            return commit_memory.held()
        except (MemoryError, CommitMemoryError):  # there is none, and the launcher is told so
            return ()

    def _connected(self, environ: Mapping[str, str]) -> tuple[RankConnection, CommitMemory]:
        if self._connection is None or not self._connection.open or self._pid != os.getpid():
            incarnation = environ.get(INCARNATION, "")
            if not incarnation.isdigit():
                raise WorldError(f"{SOCKET} is set but {INCARNATION} is {incarnation!r}: not a rank's number")
            if not self._pid:
                os.register_at_fork(after_in_child=self._forked)
            self._pid = os.getpid()
            self._connection = connection = RankConnection(environ[SOCKET], int(incarnation))
            self._commit_memory = CommitMemory(
                lambda nbytes: connection.commit_memory(nbytes)[1], connection.committed
            )
        assert self._commit_memory is not None
        return self._connection, self._commit_memory

    def _forked(self) -> None:
        """In a forked child: let go of the connection, whose end tells the agent that the rank has ended."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self.membership = None

    def leave(self) -> None:
        """Take part no more: what is under way is not looked at again. Peers do not wait for it."""
        membership, self.membership = self.membership, None
        if membership is None or self._pid != os.getpid():
            return
        membership.close()
        try:
            membership.connection.detached(membership.generation)
        except AgentGoneError:
            membership.connection.close()


def _seconds(environ: Mapping[str, str]) -> float:
    try:
        seconds = float(environ.get(TIMEOUT, ""))
    except ValueError:
        return TIMEOUT_SECONDS
    return seconds if seconds > 0 else TIMEOUT_SECONDS


ELASTIC = ElasticRank()
"""A process is one rank of one job, so there is one holder of its part in it."""
