"""What probes and Prometheus ask: /healthz, /readyz and /metrics on one port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from ringleader.errors import RefusedError
from ringleader.kubernetes.operator.runtime.metrics import Metrics

Trouble = Callable[[], str]
"""Says what is wrong; empty text where all is well."""


class HealthServer:
    """Answers over HTTP until it is stopped."""

    def __init__(self, *, is_healthy: Trouble, is_ready: Trouble, metrics: Metrics) -> None:
        """``is_healthy`` and ``is_ready`` are asked at every request."""
        self._metrics = metrics
        app = web.Application()
        app.router.add_get("/healthz", _answer(is_healthy))
        app.router.add_get("/readyz", _answer(is_ready))
        app.router.add_get("/metrics", self._numbers)
        self._runner = web.AppRunner(app, access_log=None)
        self.port = 0
        """The port that is listened on, once started."""

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0: any free one. Raises RefusedError where the port cannot be had."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, shutdown_timeout=1.0).start()
        except OSError as error:
            what = f"cannot listen on port {port}: {error.strerror or error}"
            raise RefusedError(what, where="--port") from None
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    async def _numbers(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})


def _answer(trouble: Trouble) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        what = trouble()
        return web.Response(text=what or "ok", status=503 if what else 200)

    return answer
