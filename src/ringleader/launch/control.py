"""The launcher's end of the control connections: accept, prove, cut into frames, send without blocking."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from ringleader.ranks import wire

_BUFFER = 4 * 1024 * 1024
PAUSE_SECONDS = 0.2
"""For which no connection is taken after one could not be: for lack of descriptors or memory."""
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_STRANGERS = 64
"""Connections at most that have not proven themselves."""


@dataclass(eq=False)
class Peer:
    """One connection."""

    sock: socket.socket
    challenge: bytes
    """What it must answer before anything it says is listened to."""
    rank: int | None = None
    proven: bool = False
    decoder: wire.Decoder = field(default_factory=wire.Decoder)
    handshake: bytes = b""
    waiting: bytearray = field(default_factory=bytearray)
    """Bytes that could not be sent yet."""

    @property
    def fd(self) -> int:
        """Its descriptor."""
        return self.sock.fileno()


class Control:
    """A listening socket and the agents connected to it."""

    def __init__(self, selector: selectors.BaseSelector, *, token: str, everywhere: bool, ranks: int) -> None:
        """Listen on loopback, or ``everywhere`` where ranks on other hosts must reach us."""
        self._selector = selector
        self._token = token
        self._peers: set[Peer] = set()
        self._resume_at: float | None = None
        self._shortage, self._told = "", False
        self._most = ranks + _STRANGERS
        if everywhere and socket.has_dualstack_ipv6():
            self._listener = socket.create_server(
                ("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=self._most
            )
        else:
            self._listener = socket.create_server(("" if everywhere else "127.0.0.1", 0), backlog=self._most)
        self._listener.setblocking(False)
        selector.register(self._listener, selectors.EVENT_READ, self)
        self.port: int = self._listener.getsockname()[1]

    def accept(self) -> None:
        """Take a new connection and challenge it."""
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _SHORTAGES:
                self._pause(error)
            return
        with contextlib.suppress(OSError):
            if len(self._peers) >= self._most:
                sock.close()
                return
            sock.setblocking(False)
            wire.keep_alive(sock)
            peer = Peer(sock=sock, challenge=os.urandom(wire.NONCE))
            self._peers.add(peer)
            self._selector.register(sock, selectors.EVENT_READ, peer)
            self.send(peer, peer.challenge)

    def _pause(self, error: OSError) -> None:
        """Take no connections for a while: the one that waits would be reported again and again."""
        self._resume_at = time.monotonic() + PAUSE_SECONDS
        self._selector.unregister(self._listener)
        if not self._told:
            self._shortage = f"agents cannot connect for now: {error.strerror} (see `ulimit -n`)"

    def resume(self) -> None:
        """Take connections again once a pause is over."""
        if self._resume_at is not None and time.monotonic() > self._resume_at:
            self._resume_at = None
            self._selector.register(self._listener, selectors.EVENT_READ, self)

    def trouble(self) -> str:
        """Return why no agent could connect, once; else the empty text."""
        self._told = self._told or bool(self._shortage)
        text, self._shortage = self._shortage, ""
        return text

    def serve(self, peer: Peer, mask: int) -> Iterator[tuple[int, bytes]]:
        """Send and receive on a connection; yield the frames that arrived. ``lost`` tells when it ended."""
        if mask & selectors.EVENT_WRITE:
            self._flush(peer)
        if not mask & selectors.EVENT_READ or peer not in self._peers:
            return
        try:
            data = peer.sock.recv(_BUFFER)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(peer)
            return
        try:
            yield from peer.decoder.feed(data if peer.proven else self._prove(peer, data))
        except wire.ProtocolError:
            self.drop(peer)

    def _prove(self, peer: Peer, data: bytes) -> bytes:
        """Check the agent's answer and answer its challenge; return what came after it."""
        length = wire.NONCE * 2
        peer.handshake += data
        if len(peer.handshake) < length:
            return b""
        theirs, answer = peer.handshake[: wire.NONCE], peer.handshake[wire.NONCE : length]
        if not wire.proves(self._token, "agent", peer.challenge + theirs, answer):
            raise wire.ProtocolError("a stranger")
        peer.proven = True
        self.send(peer, wire.proof(self._token, "launcher", theirs + peer.challenge))
        return peer.handshake[length:]

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
        except OSError:
            # Reading still brings what it had sent; the end shows there.
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
            self._selector.unregister(peer.sock)
            peer.sock.close()

    def close(self) -> None:
        """Close every connection and stop listening: agents that are still there end their ranks."""
        for peer in list(self._peers):
            self.drop(peer)
        if self._resume_at is None:
            self._selector.unregister(self._listener)
        self._listener.close()


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
