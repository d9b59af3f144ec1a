"""A host agent's side of the socket on which ranks and MPI proxies of its host learn of generations.

A *generation* is one membership: its number, its ranks in order, each beside the MPI proxy that does MPI for
it. The service owns what a generation has on this host: the page (`generation_page`), shared memory by key,
and for each rank the ring, the eventfd by which it wakes its proxy (wake) and the one by which that wakes it
(done). Nothing of one generation is ever used by another. The service decides nothing: orders come from
the launcher, by `begin` and `end`.

Messages of a rank: ``hello {kind: "rank", incarnation, pid}``; ``waiting {after, commits, reason, arrival}``;
``attached {generation}``; ``detached {generation}``, before it leaves one without wanting another;
``segment {generation, key, nbytes}``, ``free_segment {generation, key}``; ``commit_memory {nbytes}``;
``committed {number, nbytes}``. Of a proxy: ``hello {kind: "proxy", world, world_rank, size, pid, library}``,
``segment {generation, key}``.
To a rank: ``generation {…order, rank}`` with [page, ring, wake, done]; ``leave {why}``;
``segment {key, nbytes}`` with its memory, or ``segment {key, why}`` without; ``commit_memory`` with its
memory. To a proxy: ``generation {…order, rank}`` with [ring, wake, done], or without these where none of the
members is its own; ``end_generation {number, …}``; ``segment``; ``leave``.
"""

from __future__ import annotations

import os
import select

from ringleader.agents import protocol, unix_messages
from ringleader.agents.elastic.commit_memory import CommitMemoryError, CommitStore
from ringleader.agents.elastic.generation_page import PageWriter
from ringleader.agents.light_imports import Any, Callable, Mapping, Sequence, socket, suppress

RING_BYTES = 1 << 20
"""A rank's ring: how it is divided is the engine's business, which needs less than this."""
MOST_WAITING = 4096
"""Messages kept for a process that does not read them; one with more is given up."""


class _Peer:
    """A rank or a proxy that is connected."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.hello: dict[str, Any] = {}
        self.generation = 0
        """Of a rank: the generation that it takes part in, 0 where it is in none."""
        self.leaving = False
        """Whether its end is expected."""
        self.unsent: list[tuple[dict[str, Any], list[int]]] = []

    @property
    def kind(self) -> str:
        return str(self.hello.get("kind", ""))

    def say(self, message: dict[str, Any], fds: Sequence[int] = ()) -> bool:
        """Send a message now, or keep it until there is room; return whether the process still reads."""
        if not self.unsent:
            try:
                unix_messages.send(self.sock, message, fds)
                return True
            except BlockingIOError:
                pass
            except ConnectionError:  # its end of file is seen by whoever polls
                return True
            except OSError:  # it waits for what cannot be sent: whoever waits for it hears of its end
                return False
        self.unsent.append((message, [os.dup(fd) for fd in fds]))
        return len(self.unsent) < MOST_WAITING

    def flush(self) -> None:
        """Send what was kept."""
        while self.unsent:
            message, fds = self.unsent[0]
            try:
                unix_messages.send(self.sock, message, fds)
            except BlockingIOError:
                return
            except ConnectionError:
                pass
            except OSError:
                self.sock.shutdown(socket.SHUT_RDWR)
            del self.unsent[0]
            for fd in fds:
                os.close(fd)

    def close(self) -> None:
        for _message, fds in self.unsent:
            for fd in fds:
                os.close(fd)
        self.unsent = []
        self.sock.close()


class _Segment:
    """Shared memory of a generation: made at the first request, let go when all who asked for it have."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.fd = os.memfd_create("ringleader", os.MFD_CLOEXEC)
        self.holders: set[_Peer] = set()
        try:
            os.ftruncate(self.fd, nbytes)
        except OSError:
            os.close(self.fd)
            raise


class _Generation:
    """What a generation has on this host."""

    def __init__(self, order: dict[str, Any], page: PageWriter) -> None:
        self.order = order
        self.number = int(order["number"])
        self.world = int(order["world"])
        self.page = page
        self.ranks = {int(member[0]): rank for rank, member in enumerate(order["members"])}
        """Incarnation → rank."""
        self.segments: dict[str, _Segment] = {}
        self.broken = False

    def let_go(self, key: str, peer: _Peer) -> None:
        """Note that a rank no longer uses a segment, which goes with the last one that does."""
        segment = self.segments.get(key)
        if segment is not None and peer in segment.holders:
            segment.holders.discard(peer)
            if not segment.holders:
                del self.segments[key]
                os.close(segment.fd)

    def close(self) -> None:
        for segment in self.segments.values():
            os.close(segment.fd)
        self.segments = {}
        self.page.close()


class GenerationService:
    """The ranks and proxies of this host, and the generation that they are in."""

    def __init__(
        self,
        path: str,
        events: Callable[[dict[str, Any]], None],
        commits: CommitStore | None = None,
    ) -> None:
        """Listen at ``path``, which is in a directory that only we can enter.

        ``events`` takes what the launcher must hear: messages ``rank_waiting``, ``rank_attached``,
        ``rank_detached``, ``rank_gone``, ``proxy_ready``, ``proxy_gone``, ``committed``.
        ``commits``: the memory of this host for them, which stays the caller's.
        """
        self._events = events
        self._commits = commits
        self._peers: dict[int, _Peer] = {}
        self._generation: _Generation | None = None
        self._updates = (0, 0)
        self._preparing = False
        self._leaving = False
        self._path = path
        self._listener = unix_messages.listen_at(path, backlog=1024)

    # --- the loop ---------------------------------------------------------------------------------------

    def interests(self) -> list[tuple[int, int]]:
        """Return what to poll for."""
        reads = select.POLLIN
        own = [(fd, reads | (select.POLLOUT if peer.unsent else 0)) for fd, peer in self._peers.items()]
        return [(self._listener.fileno(), reads), *own]

    def serve(self, fd: int, events: int) -> None:
        """Handle the ``events`` that poll reported; those of other descriptors are ignored."""
        if fd == self._listener.fileno():
            for sock in unix_messages.accepted(self._listener):
                self._peers[sock.fileno()] = _Peer(sock)
            return
        peer = self._peers.get(fd)
        if peer is None:
            return
        if events & select.POLLOUT:
            peer.flush()
        if events & ~select.POLLOUT:
            self._read(fd, peer)

    def _read(self, fd: int, peer: _Peer) -> None:
        while self._peers.get(fd) is peer:
            try:
                received = unix_messages.receive(peer.sock)
            except BlockingIOError:
                return
            except (OSError, ValueError):
                received = None
            if received is None:
                self._gone(fd, peer)
                return
            message, fds = received
            for beside in fds:  # nobody sends us any
                os.close(beside)
            try:
                self._heard(peer, message)
            except (KeyError, TypeError, ValueError):
                self._gone(fd, peer)  # not a process of ours

    def _heard(self, peer: _Peer, message: dict[str, Any]) -> None:
        what = message["do"]
        if what == "hello" and message["kind"] in ("rank", "proxy"):
            peer.hello = message
            if message["kind"] == "proxy":
                self._tell("proxy_ready", message)
        elif what == "segment":
            self._give_segment(peer, message)
        elif what == "free_segment":
            generation = self._generation
            if generation is not None and generation.number == message["generation"]:
                generation.let_go(message["key"], peer)
        elif peer.kind != "rank":
            raise ValueError(what)
        elif what == "commit_memory":
            self._give_commit_memory(peer, int(message["nbytes"]))
        elif what in ("waiting", "attached", "detached", "committed"):
            if what in ("waiting", "detached"):
                peer.generation = 0
            name = what if what == "committed" else f"rank_{what}"
            self._tell(name, {**message, "incarnation": peer.hello["incarnation"]})
        else:
            raise ValueError(what)

    def _tell(self, name: str, words: dict[str, Any]) -> None:
        """Tell the launcher as much of some words as a message of that name has."""
        self._events({"do": name, **{field: words[field] for field in protocol.HOST_MESSAGES[name]}})

    def _give_commit_memory(self, peer: _Peer, nbytes: int) -> None:
        message: dict[str, Any] = {"do": "commit_memory", "nbytes": nbytes}
        fds: Sequence[int] = ()
        try:
            if self._commits is None:
                raise CommitMemoryError("this host keeps no commits")
            fds = self._commits.descriptors(nbytes)
        except CommitMemoryError as error:
            message = {"do": "commit_memory", "why": str(error)}
        self._say(peer, message, fds)

    def _gone(self, fd: int, peer: _Peer) -> None:
        """A process has ended: its generation is over, unless it had left that before."""
        del self._peers[fd]
        peer.close()
        generation = self._generation
        if generation is not None:
            for key in list(generation.segments):
                generation.let_go(key, peer)
        if peer.kind == "rank":
            incarnation = peer.hello["incarnation"]
            if generation is not None and peer.generation == generation.number:
                self._mark_broken(generation, generation.ranks.get(incarnation), incarnation)
            self._events({"do": "rank_gone", "incarnation": incarnation, "generation": peer.generation})
        elif peer.kind == "proxy":
            world = peer.hello["world"]
            if generation is not None and generation.world == world and not peer.leaving:
                self._mark_broken(generation, None, None)
            self._tell("proxy_gone", peer.hello)

    # --- memory -----------------------------------------------------------------------------------------

    def _give_segment(self, peer: _Peer, message: dict[str, Any]) -> None:
        key, generation = str(message["key"]), self._generation
        segment, why = None, f"there is no memory of the name {key}"
        if generation is None or generation.number != message["generation"]:
            why = f"generation {message['generation']} is over"
        else:
            segment = generation.segments.get(key)
            if segment is None and peer.kind == "rank":
                try:
                    segment = generation.segments[key] = _Segment(int(message["nbytes"]))
                except OSError as error:
                    why = f"{message['nbytes']} bytes of shared memory: {error.strerror}"
        if segment is None:
            self._say(peer, {"do": "segment", "key": key, "why": why})
            return
        if peer.kind == "rank":
            segment.holders.add(peer)
        self._say(peer, {"do": "segment", "key": key, "nbytes": segment.nbytes}, [segment.fd])

    # --- orders -----------------------------------------------------------------------------------------

    def begin(self, order: dict[str, Any]) -> None:
        """Begin a generation: give its ranks and proxies on this host what they share.

        ``order``: ``{number, world, restore, members: [[incarnation, world_rank, host_index, arrival], …],
        hosts, arrivals}``: ``arrival`` is a place in ``arrivals``, the words of the ranks for how they come.
        A member of this host that has ended meanwhile makes it a broken one at once. OSError where this host
        has no memory for it.
        """
        if self._generation is not None:
            self._generation.close()
            self._generation = None
        page = PageWriter(
            int(order["number"]), updates=self._updates, leaving=self._leaving, preparing=self._preparing
        )
        self._generation = generation = _Generation(order, page)
        ranks = {peer.hello["incarnation"]: peer for peer in self._of_kind("rank")}
        proxies = {
            peer.hello["world_rank"]: peer
            for peer in self._of_kind("proxy")
            if peer.hello["world"] == generation.world
        }
        told = {**order, "do": "generation"}
        for number, (incarnation, world_rank, *_) in enumerate(order["members"]):
            rank = ranks.get(incarnation)
            if rank is None and world_rank in proxies:  # it has ended since the launcher last heard of it
                self._mark_broken(generation, number, incarnation)
            elif rank is not None:
                proxy = proxies.pop(world_rank, None)
                if proxy is None:  # likewise
                    self._mark_broken(generation, None, None)
                self._begin_member(generation, {**told, "rank": number}, rank, proxy)
        for proxy in proxies.values():
            self._say(proxy, {**told, "rank": -1})
        if generation.broken:
            self._tell_proxies_of_end(generation, {"number": generation.number})

    def _begin_member(
        self, generation: _Generation, told: dict[str, Any], rank: _Peer, proxy: _Peer | None
    ) -> None:
        flags = os.EFD_CLOEXEC | os.EFD_NONBLOCK
        ring = os.memfd_create("ringleader-ring", os.MFD_CLOEXEC)
        shared = [ring, os.eventfd(0, flags), os.eventfd(0, flags)]
        try:
            os.ftruncate(ring, RING_BYTES)
            rank.generation = generation.number
            if proxy is not None:
                self._say(proxy, told, shared)
            self._say(rank, told, [generation.page.fd, *shared])
        finally:
            for fd in shared:
                os.close(fd)

    def end(self, words: dict[str, Any]) -> None:
        """End a generation, broken: ``{number, rank, incarnation, exit_code, signal, host, words}``.

        Ranks see it in the page, proxies get a message. One that is not the present one is left alone.
        """
        generation = self._generation
        if generation is None or generation.number != words.get("number"):
            return
        code, signal = words.get("exit_code"), words.get("signal")
        code = 128 + int(signal) if signal else code
        self._mark_broken(generation, words.get("rank"), words.get("incarnation"), code, words)

    def _mark_broken(
        self,
        generation: _Generation,
        rank: int | None,
        incarnation: int | None,
        code: int | None = None,
        words: Mapping[str, Any] | None = None,
    ) -> None:
        generation.page.mark_broken(rank, code)
        if not generation.broken:
            generation.broken = True
            words = {"number": generation.number, "rank": rank, "incarnation": incarnation, **(words or {})}
            self._tell_proxies_of_end(generation, words)

    def _tell_proxies_of_end(self, generation: _Generation, words: dict[str, Any]) -> None:
        for peer in self._of_kind("proxy"):
            if peer.hello["world"] == generation.world:
                self._say(peer, {**words, "do": "end_generation"})

    def notify(self, counter: int, result: int) -> None:
        """Tell the ranks that hosts were added or removed; see `generation_page`. Later ones hear it too."""
        self._updates = (counter, result)
        if self._generation is not None:
            self._generation.page.notify(counter, result)

    def set_preparing(self, preparing: bool) -> None:
        """Tell the ranks whether an update of the hosts is being prepared. Later ones hear it too."""
        self._preparing = preparing
        if self._generation is not None:
            self._generation.page.set_preparing(preparing)

    def notice(self) -> None:
        """Tell the ranks that this host is about to leave."""
        self._leaving = True
        if self._generation is not None:
            self._generation.page.notice()

    def leave(self, incarnation: int, why: str) -> None:
        """Tell a rank that waits that it is no longer a member: it ends with exit code 0."""
        for peer in self._of_kind("rank"):
            if peer.hello["incarnation"] == incarnation:
                self._say(peer, {"do": "leave", "why": why})

    def end_world(self, world: int) -> None:
        """Tell the proxies of a world that it is over: they end, without a wait for ranks."""
        for peer in self._of_kind("proxy"):
            if peer.hello["world"] == world:
                peer.leaving = True
                self._say(peer, {"do": "leave"})

    def close(self) -> None:
        """End all connections: proxies end by themselves then."""
        for peer in self._peers.values():
            peer.close()
        self._peers = {}
        if self._generation is not None:
            self._generation.close()
            self._generation = None
        self._listener.close()
        with suppress(OSError):
            os.unlink(self._path)  # noqa: PTH108

    # --- what all of this uses --------------------------------------------------------------------------

    def _of_kind(self, kind: str) -> list[_Peer]:
        return [peer for peer in self._peers.values() if peer.kind == kind]

    def _say(self, peer: _Peer, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        if not peer.say(message, fds):
            peer.sock.shutdown(socket.SHUT_RDWR)  # what follows is its end of file
