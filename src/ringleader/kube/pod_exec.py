"""A command that runs in a container, over the WebSocket that ``pods/exec`` opens.

Each message begins with the number of its channel. Version 5 of the protocol can end standard input;
version 4, of servers before Kubernetes 1.30, cannot.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import aiohttp

from ringleader.errors import Fault
from ringleader.kube.api_errors import ApiError, UnreachableError, connection_error, status_error
from ringleader.kube.cluster import Object

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
PROTOCOLS = (V5, V4)
"""Spoken by us, the best one first."""
_INPUT, _OUTPUT, _ERRORS, _RESULT, _CLOSE = 0, 1, 2, 3, 255
_PIECE = 32 * 1024
"""Bytes of standard input per message: servers refuse long ones."""


class ExecSession:
    """Keeps the promises of ``ringleader.kube.cluster.Session``."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        *,
        server: str,
        where: str,
        ping_every: float = 30.0,
    ) -> None:
        """Take over an open WebSocket. ``where`` says what was asked, for error texts.

        Every ``ping_every`` seconds something is sent, so that nobody on the way takes the connection for
        idle. No answer is insisted on: a server whose command does not read its input answers late.
        """
        self._socket, self._server, self._where = socket, server, where
        self._reading = asyncio.Lock()
        self._kept: deque[tuple[int, bytes]] = deque()
        self._code: int | ApiError | None = None
        self._pinging = asyncio.create_task(self._ping(ping_every))

    async def _ping(self, every: float) -> None:
        with suppress(aiohttp.ClientError, OSError):
            while True:
                await asyncio.sleep(every)
                await self._socket.ping()

    async def send(self, data: bytes) -> None:
        """Write to its standard input; waits while the command does not read."""
        try:
            for start in range(0, len(data), _PIECE):
                await self._socket.send_bytes(bytes((_INPUT,)) + data[start : start + _PIECE])
        except (aiohttp.ClientError, OSError) as error:
            raise connection_error(self._server, self._where, error)

    async def close_input(self) -> None:
        """End its standard input where the server can (version 5)."""
        if self._socket.protocol == V5 and not self._socket.closed:
            await self._socket.send_bytes(bytes((_CLOSE, _INPUT)))

    async def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield (1, standard output) and (2, standard error) as they come, until the command ends.

        UnreachableError where the connection ends before the command does.
        """
        while True:
            async with self._reading:
                if not self._kept and not await self._read():
                    return
                piece = self._kept.popleft()
            yield piece

    async def _read(self) -> bool:
        """Take in messages up to the next output; False where the command has ended."""
        while self._code is None:
            data = await self._message()
            channel = data[0] if data else None
            if channel in (_OUTPUT, _ERRORS) and len(data) > 1:
                self._kept.append((channel, data[1:]))
                return True
            if channel == _RESULT:
                self._code = _code_of(json.loads(data[1:]), self._where)
                await self.close()
        return False

    async def _message(self) -> bytes:
        try:
            message = await self._socket.receive()
        except (aiohttp.ClientError, OSError) as error:
            raise connection_error(self._server, self._where, error)
        if message.type is aiohttp.WSMsgType.BINARY:
            return bytes(message.data)
        if message.type is aiohttp.WSMsgType.TEXT:
            return str(message.data).encode()
        raise UnreachableError(
            Fault(
                where=self._server, what=f"the connection broke off before the command ended ({self._where})"
            )
        )

    async def exit_code(self) -> int:
        """Return its exit code once it has ended; output that nobody reads meanwhile waits for its reader.

        ApiError where the command could not be started.
        """
        while self._code is None:
            async with self._reading:
                await self._read()
        if isinstance(self._code, ApiError):
            raise self._code
        assert self._code is not None
        return self._code

    async def close(self) -> None:
        """End the connection; a command that still runs loses its streams."""
        self._pinging.cancel()
        await self._socket.close()


def _code_of(said: Any, where: str) -> int | ApiError:
    """Return the exit code that the result channel tells, or why there is none."""
    status: Object = said if isinstance(said, dict) else {}
    if status.get("status") == "Success":
        return 0
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes or ():
        text = str(cause.get("message")) if isinstance(cause, dict) else ""
        if text.isdigit() and cause.get("reason") == "ExitCode":
            return int(text)
    return status_error(status, where)
