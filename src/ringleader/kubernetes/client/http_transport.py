"""Requests to one API server over HTTP: credentials, rate, deadlines, and what can go wrong on the way.

``Limiter`` says how many requests a client sends, ``Slots`` how many are under way. `cluster` makes them.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from ringleader.errors import Fault
from ringleader.kubernetes.client.api_errors import (
    ApiError,
    UnreachableError,
    connection_error,
    response_error,
)
from ringleader.kubernetes.client.credentials import Credentials

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_CONNECT_S = 10.0
"""How long making a connection may take."""
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), seconds)
        for name, seconds in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)  # not all on macOS
    ),
)
"""A stream whose other side has vanished ends within a minute."""


SLOW_S = 1.0
"""A write that takes longer says that the server has too many of ours at a time."""
_LEAST = 4


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request, before credentials are added to it."""

    method: str
    path: str
    """On the server; its parts are quoted already."""
    query: Sequence[tuple[str, str]] = ()
    data: bytes | None = None
    content_type: str = "application/json"

    @property
    def where(self) -> str:
        """For error texts."""
        return f"{self.method} {self.path}"


class Transport:
    """One server, one pool of connections. Requests beyond its size and rate wait for their turn."""

    def __init__(
        self,
        credentials: Credentials,
        limiter: Limiter,
        timeout: float,
        *,
        connections: int,
        agent: str,
    ) -> None:
        """``timeout`` is in seconds for one call, its repetitions included, its wait for a turn not."""
        self._credentials, self._limiter = credentials, limiter
        self.timeout = timeout
        """Seconds that a call may take."""
        self._slots = Slots(connections)
        self._agent = agent
        self._session: aiohttp.ClientSession | None = None

    async def call(self, request: Request, warn: Callable[[str], None] | None = None) -> Any:
        """Send a request and return the JSON of its answer; ``warn`` hears the server's warnings.

        A request that the server turned away unread (429) is repeated after the pause that it asks for, and
        so is reading after any failure with such a pause, while the deadline allows. Refused credentials are
        renewed once where they can be.
        """
        deadline: float | None = None
        renewed = False
        while True:
            await self._limiter.take()
            async with self._slots.one(is_write=request.method != "GET"):
                headers = await self._credentials.headers()
                deadline = deadline or time.monotonic() + self.timeout
                try:
                    return await self._once(request, headers, deadline, warn)
                except ApiError as error:
                    pause = self._pause(request.method, error, renewed)
                    if pause is None or time.monotonic() + pause >= deadline:
                        raise
                    renewed = renewed or error.status == 401
            await asyncio.sleep(pause)

    def _pause(self, method: str, error: ApiError, renewed: bool) -> float | None:
        """Return the seconds after which the same request is worth sending again; ``None``: it is not."""
        if error.status == 401:
            return 0.0 if not renewed and self._credentials.forget() else None
        if error.status == 429 or (error.status >= 500 and method == "GET"):
            return error.retry_after
        return None

    async def _once(
        self,
        request: Request,
        headers: dict[str, str],
        deadline: float,
        warn: Callable[[str], None] | None,
    ) -> Any:
        try:
            async with (
                asyncio.timeout(deadline - time.monotonic()),
                await self._answer(request, headers) as answer,
            ):
                body = await answer.read()
        except (aiohttp.ClientError, OSError) as error:
            raise self._fault(request, error, self.timeout)
        if warn is not None:
            for text in warnings_of(answer.headers.getall("Warning", ())):
                warn(text)
        try:
            return json.loads(body)
        except ValueError:
            what = f"{request.where} was answered with something that is not JSON: is this an API server?"
            raise UnreachableError(Fault(where=self._credentials.server, what=what))

    @asynccontextmanager
    async def stream(
        self, request: Request, *, silence: float | None
    ) -> AsyncGenerator[AsyncGenerator[bytes, None], None]:
        """Open an answer that comes in pieces: a generator of them, to be read inside this context.

        ``silence`` is how many seconds may pass between two pieces; ``None``: any number.
        """
        await self._limiter.take()
        answer = await self._open(request)
        if answer.connection is not None and answer.connection.transport is not None:
            _notice_the_dead(answer.connection.transport.get_extra_info("socket"))
        try:
            yield self._pieces(answer, request, silence)
        finally:
            answer.close()

    async def _open(self, request: Request) -> aiohttp.ClientResponse:
        renewed = False
        while True:
            headers = await self._credentials.headers()
            try:
                async with asyncio.timeout(self.timeout):
                    return await self._answer(request, headers)
            except (aiohttp.ClientError, OSError) as error:
                raise self._fault(request, error, self.timeout)
            except ApiError as error:
                if error.status != 401 or renewed or not self._credentials.forget():
                    raise
                renewed = True

    async def _pieces(
        self, answer: aiohttp.ClientResponse, request: Request, silence: float | None
    ) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                async with asyncio.timeout(silence):
                    piece = await answer.content.readany()
                if not piece:
                    return
                yield piece
        except (aiohttp.ClientError, OSError) as error:
            raise self._fault(request, error, silence or 0.0)

    async def _answer(self, request: Request, headers: dict[str, str]) -> aiohttp.ClientResponse:
        """Send a request and return an answer that is not a refusal."""
        if self._session is None:  # made with the first request, as it needs a running loop
            self._session = aiohttp.ClientSession(
                # Streams would eat up a bounded pool: `_slots` bounds all else.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": self._agent, "Accept": "application/json"},
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            )
        if request.data is not None:
            headers["Content-Type"] = request.content_type
        words = f"?{urlencode(request.query)}" if request.query else ""
        answer = await self._session.request(
            request.method,
            URL(f"{self._credentials.server}{request.path}{words}", encoded=True),
            data=request.data,
            headers=headers,
            allow_redirects=False,
            ssl=self._credentials.tls or True,
            server_hostname=self._credentials.server_name or None,
            proxy=self._credentials.proxy or None,
        )
        if answer.status < 300:
            return answer
        async with answer:
            raise response_error(answer.status, answer.headers, await answer.read(), request.where)

    def _fault(self, request: Request, error: Exception, seconds: float) -> UnreachableError:
        """Return what a failed connection means; ``seconds`` were given for the answer."""
        if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
            what = f"no answer to {request.where} within {seconds:g} s"
            return UnreachableError(Fault(where=self._credentials.server, what=what))
        return connection_error(self._credentials.server, request.where, error)

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()


def _notice_the_dead(found: socket.socket | None) -> None:
    """Let the kernel ask whether the other side is still there: a quiet stream would never find out."""
    if found is not None:
        for level, name, value in _KEEPALIVE:
            found.setsockopt(level, name, value)


def warnings_of(headers: Iterable[str]) -> list[str]:
    """Return the texts of ``Warning`` headers: code, agent, quoted text (RFC 7234, section 5.5)."""
    found = []
    for header in headers:
        for quoted in _WARNING.findall(header):
            text = re.sub(r"\\(.)", r"\1", quoted)
            if text and text not in found:
                found.append(text)
    return found


class Limiter:
    """This many requests per second in the long run, this many at once after a rest."""

    def __init__(
        self,
        qps: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``qps`` is in requests per second, 0 for no limit; ``burst`` at least 1; ``clock`` in seconds."""
        self._gap = 1.0 / qps if qps > 0 else 0.0
        self._slack = (max(1, burst) - 1) * self._gap
        self._clock, self._sleep = clock, sleep
        self._due = clock()

    async def take(self) -> float:
        """Wait for our turn; return the seconds waited."""
        wait = self.reserve()
        if wait > 0:
            await self._sleep(wait)
        return wait

    def reserve(self) -> float:
        """Take the next turn and return the seconds until it comes.

        ``_due`` is when the next request would be due if they all came evenly (virtual scheduling form of a
        token bucket): a request may come earlier by as much as the burst allows.
        """
        now = self._clock()
        due = max(self._due, now)
        self._due = due + self._gap
        return max(0.0, due - self._slack - now)


class Slots:
    """How many calls are under way at a time: fewer while the server is slow, so that it answers others.

    A slow write halves the number, once for all that were under way with it; as many quick ones as the
    number says add one. Reads do not count: a long listing is slow by itself.
    """

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with ``most``, the number that is never exceeded."""
        self._most, self._clock = most, clock
        self.limit = float(most)
        self._free, self._withheld = asyncio.Semaphore(most), 0
        self._cut_at = clock()

    @asynccontextmanager
    async def one(self, *, is_write: bool) -> AsyncGenerator[None, None]:
        """Wait for a slot and hold it inside this context."""
        await self._free.acquire()
        began = self._clock()
        try:
            yield
        finally:
            now = self._clock()
            if is_write and now - began <= SLOW_S:
                self.limit = min(float(self._most), self.limit + 1.0 / self.limit)
            elif is_write and began >= self._cut_at:
                self.limit, self._cut_at = max(float(min(_LEAST, self._most)), self.limit / 2.0), now
            self._withheld += 1
            while self._withheld > self._most - int(self.limit):
                self._withheld -= 1
                self._free.release()
