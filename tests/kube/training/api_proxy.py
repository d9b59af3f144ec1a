"""The API server's address inside a lab host: connections to 127.0.0.1 there come out at the fake server."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import threading
from contextlib import suppress

NETWORK = 0x40000000


def listen_in(namespace: str) -> socket.socket:
    """Return a socket that listens on 127.0.0.1 of a network namespace, at a free port."""
    made: list[socket.socket] = []

    def work() -> None:
        # A thread of its own: only this one moves to the other namespace, and ends there.
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        try:
            if libc.setns(descriptor, NETWORK) == 0:
                made.append(socket.create_server(("127.0.0.1", 0)))
        finally:
            os.close(descriptor)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert made, f"cannot listen in {namespace}"
    return made[0]


async def open_door(listener: socket.socket, port: int) -> asyncio.Server:
    """Pass on what comes to a listening socket to a port of this machine."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

    return await asyncio.start_server(relay, sock=listener)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
