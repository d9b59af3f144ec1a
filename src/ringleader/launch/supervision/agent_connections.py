"""The launcher's end of the control connections: accept, prove, cut into frames, send without blocking."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ringleader.ranks import protocol

_BUFFER = 4 * 1024 * 1024
PAUSE_SECONDS = 0.2
"""For which no connection is taken after one could not be: for lack of descriptors or memory."""
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_STRANGERS = 64
"""Connections at most, besides one for each rank, that have not proven themselves."""
PROOF_SECONDS = 5.0
"""For a connection to prove itself."""
_PORT_ATTEMPTS = 20
"""A port that is free on one address may be taken on another."""
_SILENCE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)
"""How a connection ends whose other side has not answered; a side that is killed closes it."""


@dataclass(eq=False)
class Peer:
    """One connection."""

    sock: socket.socket
    challenge: bytes
    """What it must answer before anything it says is listened to."""
    rank: int | None = None
    proven: bool = False
    silent: bool = False
    """Given up because nothing came any more, not even from the other host's kernel."""
    decoder: protocol.Decoder = field(default_factory=protocol.Decoder)
    handshake: bytes = b""
    waiting: bytearray = field(default_factory=bytearray)
    """Bytes that could not be sent yet."""

    @property
    def fd(self) -> int:
        """Its descriptor."""
        return self.sock.fileno()


class Control:
    """A listening socket and the agents connected to it."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        *,
        token: str,
        addresses: Sequence[str],
        ranks: int,
        lost_after: float = protocol.LOST_AFTER,
    ) -> None:
        """Listen on ``addresses``, all on one port; see ``_listen``.

        ``lost_after``: seconds of silence after which a connection is given up.
        """
        self._selector = selector
        self._token = token
        self._peers: set[Peer] = set()
        self._resume_at: float | None = None
        self._shortage, self._told = "", False
        self._lost_after = lost_after
        self._most_strangers = ranks + _STRANGERS
        self._strangers: dict[Peer, float] = {}
        self._listeners = _listen(addresses, backlog=ranks + _STRANGERS)
        for listener in self._listeners:
            listener.setblocking(False)
            selector.register(listener, selectors.EVENT_READ, self)
        self.port: int = self._listeners[0].getsockname()[1]

    def accept(self) -> None:
        """Take new connections and challenge them."""
        for listener in self._listeners:
            try:
                sock, _ = listener.accept()
            except OSError as error:
                if error.errno in _SHORTAGES:
                    self._pause(error)
                    return
                continue
            self._take(sock)

    def _take(self, sock: socket.socket) -> None:
        """Challenge a connection; of too many strangers the one that has been silent longest has to go."""
        if len(self._strangers) >= self._most_strangers:
            self.drop(next(iter(self._strangers)))
        with contextlib.suppress(OSError):
            sock.setblocking(False)
            protocol.keep_alive(sock, self._lost_after)
            peer = Peer(sock=sock, challenge=os.urandom(protocol.NONCE))
            self._peers.add(peer)
            self._strangers[peer] = time.monotonic() + PROOF_SECONDS
            self._selector.register(sock, selectors.EVENT_READ, peer)
            self.send(peer, peer.challenge)

    def _pause(self, error: OSError) -> None:
        """Take no connections for a while: the one that waits would be reported again and again."""
        self._resume_at = time.monotonic() + PAUSE_SECONDS
        for listener in self._listeners:
            self._selector.unregister(listener)
        if not self._told:
            self._shortage = f"agents cannot connect for now: {error.strerror} (see `ulimit -n`)"

    def resume(self) -> None:
        """Take connections again once a pause is over."""
        if self._resume_at is not None and time.monotonic() > self._resume_at:
            self._resume_at = None
            for listener in self._listeners:
                self._selector.register(listener, selectors.EVENT_READ, self)

    def trouble(self) -> str:
        """Return why no agent could connect, once; else the empty text."""
        self._told = self._told or bool(self._shortage)
        text, self._shortage = self._shortage, ""
        return text

    def serve(self, peer: Peer, mask: int) -> Iterator[tuple[int, bytes]]:
        """Send and receive on a connection; yield the frames that arrived. ``lost`` tells when it ended."""
        if peer in self._peers and mask & selectors.EVENT_WRITE:
            self._flush(peer)
        if peer not in self._peers or not mask & selectors.EVENT_READ:
            return
        try:
            data = peer.sock.recv(_BUFFER)
        except BlockingIOError:
            return
        except OSError as error:
            peer.silent = peer.silent or error.errno in _SILENCE
            data = b""
        if not data:
            self.drop(peer)
            return
        try:
            yield from peer.decoder.feed(data if peer.proven else self._prove(peer, data))
        except protocol.ProtocolError:
            self.drop(peer)

    def _prove(self, peer: Peer, data: bytes) -> bytes:
        """Check the agent's answer and answer its challenge; return what came after it."""
        length = protocol.NONCE * 2
        peer.handshake += data
        if len(peer.handshake) < length:
            return b""
        theirs, answer = (
            peer.handshake[: protocol.NONCE],
            peer.handshake[protocol.NONCE : length],
        )
        if not protocol.proves(self._token, "agent", peer.challenge + theirs, answer):
            raise protocol.ProtocolError("a stranger")
        peer.proven = True
        self._strangers.pop(peer, None)
        self.send(peer, protocol.proof(self._token, "launcher", theirs + peer.challenge))
        return peer.handshake[length:]

    def part_with_strangers(self) -> None:
        """Close connections that have not proven themselves in time: each must answer one challenge."""
        now = time.monotonic()
        for peer in [peer for peer, until in self._strangers.items() if now > until]:
            self.drop(peer)

    def lost(self, peer: Peer) -> bool:
        """Say whether a connection has ended."""
        return peer not in self._peers

    def send(self, peer: Peer, data: bytes) -> None:
        """Send bytes, now as far as possible, the rest when the connection takes it."""
        if peer in self._peers:
            peer.waiting += data
            self._flush(peer)

    def _flush(self, peer: Peer) -> None:
        try:
            while peer.waiting:
                sent = peer.sock.send(peer.waiting)
                del peer.waiting[:sent]
        except BlockingIOError:
            pass
        except OSError as error:
            # Reading still brings what it had sent; the end shows there.
            peer.silent = peer.silent or error.errno in _SILENCE
            peer.waiting.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.waiting else 0)
        self._selector.modify(peer.sock, events, peer)

    def flush_all(self, seconds: float) -> None:
        """Send what waits for any peer, as far as the connections take it within so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and (late := [peer for peer in self._peers if peer.waiting]):
            poll = select.poll()
            for peer in late:
                poll.register(peer.fd, select.POLLOUT)
            poll.poll(50)
            for peer in late:
                self._flush(peer)

    def drop(self, peer: Peer) -> None:
        """Close one connection."""
        if peer in self._peers:
            self._peers.discard(peer)
            self._strangers.pop(peer, None)
            self._selector.unregister(peer.sock)
            peer.sock.close()

    def close(self) -> None:
        """Close every connection and stop listening: agents that are still there end their ranks."""
        for peer in list(self._peers):
            self.drop(peer)
        for listener in self._listeners:
            if self._resume_at is None:
                self._selector.unregister(listener)
            listener.close()


def _listen(addresses: Sequence[str], *, backlog: int) -> list[socket.socket]:
    """Return sockets that listen on these addresses on one free port; on all there are where none is ours.

    Ours are those by which agents are told to reach us; nobody else needs to find this port.
    """
    for _ in range(_PORT_ATTEMPTS):
        made: list[socket.socket] = []
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                port = made[0].getsockname()[1] if made else 0
                made.append(socket.create_server((address, port), family=family, backlog=backlog))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    break  # free on one address, taken on another: look for another port
        else:
            if made:
                return made
        for one in made:
            one.close()
    if socket.has_dualstack_ipv6():
        return [socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)]
    return [socket.create_server(("", 0), backlog=backlog)]


def local_address_towards(address: str) -> str | None:
    """Return the address of ours from which packets to ``address`` leave; nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])
    return None


def control_variable(addresses: list[str], port: int | str) -> str:
    """Return RINGLEADER_CONTROL: where agents find the launcher, best address first."""
    return ",".join(f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in addresses)
