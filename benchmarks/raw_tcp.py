"""What plain TCP sockets carry in a ring of hosts: each sends to the next while it receives from the last.

The same payload passes through one small buffer at either end, so nothing but the sockets is measured: no
allreduce between these hosts can move as many bytes sooner.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence

CHUNK_BYTES = 1 << 20
DEADLINE_SECONDS = 60.0
"""A peer that does not connect, or neither sends nor takes anything for this long, is an error."""


class Ring:
    """The two connections of one host."""

    def __init__(self, listener: socket.socket, addresses: Sequence[tuple[str, int]], me: int) -> None:
        """Connect to the next host, and take the connection of the one before; all hosts do so together.

        ``addresses`` are those of all hosts' listeners, ``me`` is this one's number.
        """
        after = addresses[(me + 1) % len(addresses)]
        self._out = socket.create_connection(after, timeout=DEADLINE_SECONDS)
        listener.settimeout(DEADLINE_SECONDS)
        self._into, _address = listener.accept()
        self._into.settimeout(DEADLINE_SECONDS)
        self._out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._chunk = memoryview(bytearray(CHUNK_BYTES))

    def seconds(self, nbytes: int) -> float:
        """Return how long it takes to send this many bytes and to receive as many."""
        failed: list[Exception] = []

        def send() -> None:
            payload, left = memoryview(bytes(CHUNK_BYTES)), nbytes
            try:
                while left:
                    left -= self._out.send(payload[: min(left, CHUNK_BYTES)])
            except OSError as error:
                failed.append(error)

        sender = threading.Thread(target=send)
        start, left = time.perf_counter(), nbytes
        sender.start()
        while left:
            got = self._into.recv_into(self._chunk, min(left, CHUNK_BYTES))
            if not got:
                raise ConnectionError("the host before ended its connection")
            left -= got
        sender.join()
        if failed:
            raise failed[0]
        return time.perf_counter() - start

    def close(self) -> None:
        """End both connections."""
        self._out.close()
        self._into.close()


def new_listener() -> socket.socket:
    """Return a socket that takes one connection on any address, at a free port."""
    return socket.create_server(("", 0), backlog=1)
