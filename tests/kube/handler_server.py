"""A server of one handler on loopback: for what a fake API server would never send."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from ringleader.kubernetes.client.cluster import Cluster
from ringleader.kubernetes.client.credentials import Credentials, Identity

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Answer every request with a handler, which is cancelled where its client goes; yields the URL."""
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True), shutdown_timeout=1.0)  # type: ignore[arg-type]
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client(url: str, *, identity: Identity | None = None, **options: Any) -> AsyncIterator[Cluster]:
    """A client of such a server."""
    cluster = Cluster(Credentials(server=url, identity=identity or Identity()), **options)
    try:
        yield cluster
    finally:
        await cluster.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run an asynchronous test to its end, which must come within a minute."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())
