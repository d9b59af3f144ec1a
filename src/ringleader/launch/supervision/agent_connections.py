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

from ringleader.agents import protocol

_BUFFER = 4 * 1024 * 1024
PAUSE_SECONDS = 0.2
"""For which no connection is taken after one could not be: for lack of descriptors or memory."""
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_UNPROVEN = 64
"""Connections at most, besides one for each rank, that have not proven themselves."""
LOOK_SECONDS = 1.0
"""From one look for silent hosts to the next."""
PROOF_SECONDS = 5.0
"""For a connection to prove itself."""
AT_ONCE = 16
"""Connections that are taken before others are served."""
_PORT_ATTEMPTS = 20
"""A port that is free on one address may be taken on another."""
_SILENCE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)
"""How a connection ends whose other side has not answered; a side that is killed closes it."""


@dataclass(eq=False)
class AgentConnection:
    """One connection."""

    sock: socket.socket
    challenge: bytes
    """What it must answer before anything it says is listened to."""
    rank: int | None = None
    silent: bool = False
    """Given up because nothing came any more, not even from the other host's kernel."""
    decoder: protocol.Decoder | None = None
    """Of what the agent sends, from its proof on; as long as it has given none, there is none."""
    seal: protocol.Seal | None = None
    """Of what is sent to it from then on."""
    handshake: bytes = b""
    waiting: bytearray = field(default_factory=bytearray)
    """Bytes that could not be sent yet."""
    is_late: bool = False
    """The selector waits for it to take more."""


LOOPBACK = "127.0.0.1"


class AgentServer:
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
        """Listen on ``addresses``, all on one port; see ``listen``.

        ``lost_after``: seconds of silence after which a connection is given up.
        """
        self._selector, self._token = selector, token
        self._connections: set[AgentConnection] = set()
        self._resume_at: float | None = None
        self._shortage, self._told = "", False
        self._lost_after = lost_after
        self._look_at = 0.0
        self._most_unproven = ranks + _UNPROVEN
        self._unproven: dict[AgentConnection, float] = {}
        self._listeners: list[socket.socket] = []
        self.port = 0
        self._listen(addresses)

    def _listen(self, addresses: Sequence[str]) -> None:
        for listener in (made := listen(addresses, backlog=self._most_unproven)):
            listener.setblocking(False)
            if self._resume_at is None:
                self._selector.register(listener, selectors.EVENT_READ, self.accept)
        self._listeners += made
        self.port = made[0].getsockname()[1]

    def listen_to_others(self) -> None:
        """Listen on all interfaces, too, on a port of which ``port`` tells from then on."""
        self._listen(())

    def accept(self, _: int = 0) -> None:
        """Take new connections and challenge them."""
        for listener in AT_ONCE * self._listeners:
            try:
                sock, _address = listener.accept()
            except OSError as error:
                if error.errno in _SHORTAGES:
                    self._pause(error)
                    return
                continue
            self._take(sock)

    def _take(self, sock: socket.socket) -> None:
        """Challenge a connection; of too many unproven ones the oldest has to go."""
        if len(self._unproven) >= self._most_unproven:
            self.drop(next(iter(self._unproven)))
        with contextlib.suppress(OSError):
            sock.setblocking(False)
            protocol.keep_alive(sock, self._lost_after)
            connection = AgentConnection(sock=sock, challenge=os.urandom(protocol.NONCE))
            self._connections.add(connection)
            self._unproven[connection] = time.monotonic() + PROOF_SECONDS
            self._selector.register(sock, selectors.EVENT_READ, connection)
            self.send(connection, connection.challenge)

    def _pause(self, error: OSError) -> None:
        """Take no connections for a while: the one that waits would be reported again and again."""
        self._resume_at = time.monotonic() + PAUSE_SECONDS
        for listener in self._listeners:
            self._selector.unregister(listener)
        if not self._told:
            self._shortage = f"agents cannot connect for now: {error.strerror} (see `ulimit -n`)"

    def tick(self) -> str:
        """Do what is due; return why no agent could connect, once, else the empty text.

        Connections that have not proven themselves in time are closed: each must answer one challenge.
        """
        now = time.monotonic()
        if self._resume_at is not None and now > self._resume_at:
            self._resume_at = None
            for listener in self._listeners:
                self._selector.register(listener, selectors.EVENT_READ, self.accept)
        # The first came first: the others have longer.
        while self._unproven and now > self._unproven[first := next(iter(self._unproven))]:
            self.drop(first)
        if now > self._look_at:
            self._look_at = now + LOOK_SECONDS
            for connection in self._connections:
                if protocol.silence(connection.sock) > self._lost_after + LOOK_SECONDS:
                    connection.silent = True
                    with contextlib.suppress(OSError):
                        connection.sock.shutdown(socket.SHUT_RDWR)  # reading brings what is there, and ends
        self._told = self._told or bool(self._shortage)
        text, self._shortage = self._shortage, ""
        return text

    def serve(self, connection: AgentConnection, mask: int) -> Iterator[tuple[int, bytes]]:
        """Send and receive on a connection; yield the frames that arrived. ``lost`` tells when it ended."""
        if connection in self._connections and mask & selectors.EVENT_WRITE:
            self._flush(connection)
        if connection not in self._connections or not mask & selectors.EVENT_READ:
            return
        try:
            data = connection.sock.recv(_BUFFER)
        except BlockingIOError:
            return
        except OSError as error:
            connection.silent |= error.errno in _SILENCE
            data = b""
        if not data:
            self.drop(connection)
            return
        try:
            if connection.decoder is None:
                data = self._prove(connection, data)
            if connection.decoder is not None:
                yield from connection.decoder.feed(data)
        except protocol.ProtocolError:
            self.drop(connection)

    def _prove(self, connection: AgentConnection, data: bytes) -> bytes:
        """Check the agent's answer and answer its challenge; return what came after it."""
        connection.handshake += data
        theirs, answer = connection.handshake[: protocol.NONCE], connection.handshake[protocol.NONCE :]
        if len(answer) < protocol.NONCE:
            return b""
        nonces = connection.challenge + theirs
        if not protocol.proves(self._token, "agent", nonces, answer[: protocol.NONCE]):
            raise protocol.ProtocolError("a connection without the token")
        self._unproven.pop(connection, None)
        self.send(connection, protocol.proof(self._token, "launcher", theirs + connection.challenge))
        connection.decoder = protocol.Decoder(protocol.Seal(self._token, "agent", nonces))
        connection.seal = protocol.Seal(self._token, "launcher", nonces)
        return answer[protocol.NONCE :]

    def lost(self, connection: AgentConnection) -> bool:
        """Say whether a connection has ended."""
        return connection not in self._connections

    def send(self, connection: AgentConnection, data: bytes) -> None:
        """Send a frame, now as far as possible, the rest when the connection takes it."""
        if connection in self._connections:
            connection.waiting += data if connection.seal is None else data + connection.seal.tag(data)
            self._flush(connection)

    def _flush(self, connection: AgentConnection) -> None:
        try:
            while connection.waiting:
                sent = connection.sock.send(connection.waiting)
                del connection.waiting[:sent]
        except BlockingIOError:
            pass
        except OSError as error:
            # Reading still brings what it had sent; the end shows there.
            connection.silent |= error.errno in _SILENCE
            connection.waiting.clear()
        if bool(connection.waiting) != connection.is_late:
            connection.is_late = not connection.is_late
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.is_late else 0)
            self._selector.modify(connection.sock, events, connection)

    def flush_all(self, seconds: float) -> None:
        """Send what waits for any connection, as far as the connections take it within this long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and (
            late := [connection for connection in self._connections if connection.waiting]
        ):
            poll = select.poll()
            for connection in late:
                poll.register(connection.sock, select.POLLOUT)
            poll.poll(50)
            for connection in late:
                self._flush(connection)

    def drop(self, connection: AgentConnection) -> None:
        """Close one connection."""
        if connection in self._connections:
            self._connections.discard(connection)
            self._unproven.pop(connection, None)
            self._selector.unregister(connection.sock)
            connection.sock.close()

    def close(self) -> None:
        """Close every connection and stop listening: agents that are still there end their ranks."""
        for connection in list(self._connections):
            self.drop(connection)
        for listener in self._listeners:
            if self._resume_at is None:
                self._selector.unregister(listener)
            listener.close()


def listen(addresses: Sequence[str], *, backlog: int) -> list[socket.socket]:
    """Return sockets that listen on these addresses on one free port; on all there are where none is ours.

    Ours are those by which agents reach us; nobody else needs to find this port.
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
