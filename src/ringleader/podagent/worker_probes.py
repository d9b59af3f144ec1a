"""Ask a worker by ssh's first word: its name must have an address, and what listens there must be an sshd."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress

from ringleader.podagent.answers import Answer, State

USUAL_PORTS = (22, 2222)
"""sshd's own, and that of the reference's images, whose users are not root."""
PATIENCE = 5.0
"""Seconds for an address, a connection, a first word."""


def port_of(ssh_config: str) -> tuple[int, ...]:
    """Return the port in what ``ssh -G HOST`` printed: where the image's ssh turns to; () where it is not."""
    for line in ssh_config.splitlines():
        name, _, value = line.partition(" ")
        if name.lower() == "port" and value.strip().isdecimal():
            return (int(value),)
    return ()


class SshQuestion:
    """Asks workers; where their port is unknown, the first that answers tells it for all."""

    def __init__(self, ports: Sequence[int], *, by_address: bool = False) -> None:
        """``ports``: those that may be meant, the likeliest first.

        ``by_address``: an address is enough; nothing is sent to the worker.
        """
        self._ports, self._by_address = tuple(ports), by_address

    async def __call__(self, host: str) -> Answer:
        """Ask one host."""
        try:
            # Names are asked for anew each time: nothing of ours remembers that there was no such name.
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            reason = getattr(error, "strerror", None) or error
            return Answer(state=State.NAMELESS, detail=f"has no address yet ({reason})")
        if self._by_address:
            return Answer(state=State.READY)
        address = found[0][4][0]
        for port in self._ports:
            if await _is_sshd(str(address), port):
                self._ports = (port,)
                return Answer(state=State.READY)
        ports = " or ".join(map(str, self._ports))
        return Answer(state=State.SILENT, detail=f"has no sshd on port {ports} yet")


async def _is_sshd(address: str, port: int) -> bool:
    """Say whether an sshd greets us there. A mesh's proxy takes any connection."""
    writer = None
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(address, port)
            return (await reader.readexactly(4)) == b"SSH-"
    except (OSError, EOFError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
