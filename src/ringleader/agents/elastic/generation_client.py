"""A rank's or an MPI proxy's side of the host agent's socket: see `generation_server` for the messages.

Any thread of a rank may use its connection.
All calls that wait have a deadline. When the agent goes, a call raises `AgentGoneError`.
"""

from __future__ import annotations

import os
import select
import time
from threading import RLock

from ringleader.agents import unix_messages
from ringleader.agents.light_imports import Any, Sequence, suppress

SOCKET, INCARNATION, WORLD = "RINGLEADER_HOST_AGENT", "RINGLEADER_INCARNATION", "RINGLEADER_WORLD"
"""Variables: the path of the host agent's socket; a rank's incarnation; the number of a proxy's world."""
SLOT = "RINGLEADER_SLOT"
"""Variable: the number of a rank's slot on its host, which it has for as long as it lives."""
AGENT_NUMBERS = "RINGLEADER_AGENT_NUMBERS"
"""Variable of proxies: by rank in the world the number of its agent on its machine, as JSON; none: 0."""
ANSWER_SECONDS = 60.0
"""For an answer of the agent's, which is at once as a rule."""
LOOK_SECONDS = 5.0
"""The longest single wait for a message."""


class AgentGoneError(RuntimeError):
    """The host agent has ended, or does not answer."""


class LeaveError(Exception):
    """The job continues without this rank, or the world of this proxy is over: it ends with exit code 0."""


class Generation:
    """What a rank or a proxy is given of a generation; see `GenerationService.begin`."""

    def __init__(self, order: dict[str, Any], fds: Sequence[int]) -> None:
        """``fds``: a rank's page, ring, wake and done; a proxy's ring, wake and done, or none. They are its.

        See `generation_server`.
        """
        self.order = order
        self.number: int = order["number"]
        self.world: int = order["world"]
        self.restore: int = order.get("restore", 0)
        """Number of the commit to continue from, 0 for none."""
        self.rank: int = order["rank"]
        """Rank of this rank, or of the one that the proxy is for; -1 where it is for none."""
        self.world_ranks: list[int] = [int(member[1]) for member in order["members"]]
        """By rank, the number of its proxy in the world."""
        self.host_indexes: list[int] = [int(member[2]) for member in order["members"]]
        """By rank, the number of its host."""
        self.arrivals: list[str] = [str(order["arrivals"][member[3]]) for member in order["members"]]
        """By rank, what it said of how it comes."""
        self.page_fd = fds[0] if len(fds) == 4 else -1
        self.ring_fd, self.wake_fd, self.done_fd = fds[-3:] if len(fds) >= 3 else (-1, -1, -1)

    def close(self) -> None:
        """Close the descriptors; what was mapped stays."""
        for fd in (self.page_fd, self.ring_fd, self.wake_fd, self.done_fd):
            if fd >= 0:
                os.close(fd)
        self.page_fd = self.ring_fd = self.wake_fd = self.done_fd = -1


class AgentConnection:
    """A connection to the host agent."""

    def __init__(self, path: str) -> None:
        """Connect; `AgentGoneError` where nobody listens there, or another user does."""
        self._queue: list[tuple[dict[str, Any], list[int]]] = []
        self._asking = RLock()  # held from a question to its answer
        self.open = True
        try:
            self._sock = unix_messages.connected_to(path, seconds=ANSWER_SECONDS)
        except OSError as error:
            raise AgentGoneError(f"no host agent at {path}: {error}") from error

    def fileno(self) -> int:
        """Return the socket's descriptor, to be polled."""
        return self._sock.fileno()

    def hung_up(self) -> bool:
        """Return whether the agent has closed the connection, or has ended; costs a call of the system."""
        if not self.open:
            return True
        poll = select.poll()
        poll.register(self._sock.fileno(), 0)
        return bool(poll.poll(0))

    def say(self, **words: Any) -> None:
        """Send a message; `AgentGoneError` where nobody takes it."""
        try:
            unix_messages.send(self._sock, words)
        except OSError as error:
            self.open = False
            raise AgentGoneError(f"the host agent takes no message: {error}") from error

    @property
    def waiting(self) -> bool:
        """Return whether messages have been received that nobody has taken yet."""
        return bool(self._queue)

    def take(self, kinds: Sequence[str], seconds: float) -> tuple[dict[str, Any], list[int]] | None:
        """Return the next message of these kinds and its descriptors, None after this long; others wait.

        `AgentGoneError` at the connection's end.
        """
        for at, (message, fds) in enumerate(self._queue):
            if message.get("do") in kinds:
                del self._queue[at]
                return message, fds
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            poll = select.poll()
            poll.register(self._sock.fileno(), select.POLLIN)
            if not poll.poll(min(left, LOOK_SECONDS) * 1000):
                if time.monotonic() >= deadline:
                    return None
                continue
            message, fds = self._receive()
            if message.get("do") in kinds:
                return message, fds
            self._queue.append((message, fds))

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        try:
            received = unix_messages.receive(self._sock)
        except (OSError, ValueError) as error:
            self.open = False
            raise AgentGoneError(f"the host agent is not understood: {error}") from error
        if received is None:
            self.open = False
            raise AgentGoneError("the host agent has ended")
        return received

    def answer(self, kind: str, key: str = "") -> tuple[dict[str, Any], list[int]]:
        """Return the agent's answer of this kind (and key); `AgentGoneError` where none comes in time."""
        end = time.monotonic() + ANSWER_SECONDS
        while (left := end - time.monotonic()) > 0:
            found = self.take((kind,), left)
            if found is None:
                break
            if not key or found[0].get("key") == key:
                return found
            for fd in found[1]:
                os.close(fd)
        raise AgentGoneError(f"the host agent has not answered ({kind}) in {ANSWER_SECONDS:g} s")

    def segment(self, generation: int, key: str, nbytes: int = 0) -> tuple[int, int]:
        """Return a descriptor of shared memory and its bytes; the caller closes it.

        ``nbytes`` where it is to be made if nobody has asked for it yet. MemoryError where there is none.
        """
        with self._asking:
            self.say(do="segment", generation=generation, key=key, nbytes=nbytes)
            message, fds = self.answer("segment", key)
        if not fds:
            raise MemoryError(f"the host agent gives no memory: {message.get('why', '')}")
        return fds[0], int(message["nbytes"])

    def close(self) -> None:
        """End the connection."""
        self.open = False
        for _message, fds in self._queue:
            for fd in fds:
                os.close(fd)
        self._queue = []
        with suppress(OSError):
            self._sock.close()


class RankConnection(AgentConnection):
    """A rank's connection."""

    def __init__(self, path: str, incarnation: int) -> None:
        """Connect and say which incarnation this is."""
        super().__init__(path)
        self.incarnation = incarnation
        self.say(do="hello", kind="rank", incarnation=incarnation, pid=os.getpid())

    def wait(self, *, after: int, commits: Sequence[int] = (), reason: str = "", arrival: str = "") -> None:
        """Say that this rank is in no generation and wants the next one.

        ``after``: the one that it has left, 0 at first. ``commits``: numbers that its host holds complete.
        ``arrival``: what all ranks of the next one are to know of this one; only they read it.
        """
        self.say(do="waiting", after=after, commits=list(commits), reason=reason, arrival=arrival)

    def next_generation(self, seconds: float) -> Generation | None:
        """Return the generation that has begun for this rank, None where none does in this long.

        `LeaveError` where the job continues without it.
        """
        with self._asking:
            found = self.take(("generation", "leave"), seconds)
        if found is None:
            return None
        message, fds = found
        if message["do"] == "leave":
            raise LeaveError(message.get("why", ""))
        return Generation(message, fds)

    def attached(self, generation: int) -> None:
        """Say that this rank takes part in a generation now."""
        self.say(do="attached", generation=generation)

    def detached(self, generation: int) -> None:
        """Say that this rank takes part no more, so that its end is not a failure."""
        self.say(do="detached", generation=generation)

    def free_segment(self, generation: int, key: str) -> None:
        """Say that this rank needs memory no more."""
        self.say(do="free_segment", generation=generation, key=key)

    def commit_memory(self, nbytes: int) -> tuple[dict[str, Any], list[int]]:
        """Ask for memory for a commit of this many bytes; return the agent's words and its descriptors."""
        with self._asking:
            self.say(do="commit_memory", nbytes=nbytes)
            message, fds = self.answer("commit_memory")
        if not fds:
            raise MemoryError(f"the host agent gives no memory: {message.get('why', '')}")
        return message, fds

    def committed(self, number: int, nbytes: int = 0) -> None:
        """Say that a commit is complete on this host."""
        self.say(do="committed", number=number, nbytes=nbytes)


class ProxyConnection(AgentConnection):
    """An MPI proxy's connection."""

    def __init__(self, path: str, *, world: int, world_rank: int, size: int, library: str) -> None:
        """Connect and say that this proxy is ready."""
        super().__init__(path)
        self.say(
            do="hello",
            kind="proxy",
            world=world,
            world_rank=world_rank,
            size=size,
            pid=os.getpid(),
            library=library,
        )

    def order(self, seconds: float = 0.0) -> tuple[dict[str, Any], list[int]] | None:
        """Return the next order (``generation``, ``end_generation``) and its descriptors, None for none.

        `LeaveError` where the world is over.
        """
        found = self.take(("generation", "end_generation", "leave"), seconds)
        if found is not None and found[0]["do"] == "leave":
            raise LeaveError
        return found
