"""A fake cluster: its server on loopback, in a thread of its own, and the handles that tests need."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from aiohttp import StreamReader, web
from aiohttp.http_parser import RawRequestMessage
from tests.kube.fake import kinds
from tests.kube.fake.access import Access
from tests.kube.fake.accounts import Accounts
from tests.kube.fake.containers import Containers
from tests.kube.fake.fault_injection import Faults
from tests.kube.fake.features import Features
from tests.kube.fake.garbage import Garbage
from tests.kube.fake.handles import Handles
from tests.kube.fake.kinds import Kinds
from tests.kube.fake.objects import Objects
from tests.kube.fake.quota import Quota
from tests.kube.fake.server import Server
from tests.kube.fake.simulated_job_controller import JobController
from tests.kube.fake.simulated_kubelet import Kubelet
from tests.kube.fake.simulation_settings import StandInOptions
from tests.kube.fake.store import Store
from tests.kube.fake.tls import make as make_tls

WINDOW = 20_000
"""Events of each kind that a watch may be behind."""
NAMESPACES = ("default", "kube-system", "kube-public")


class FakeCluster(Handles):
    """A cluster for one test. Use it as a context manager, ``with`` or ``async with``.

    Methods may be called from any thread; what they do, they do on the server's own loop.
    """

    def __init__(
        self,
        *,
        features: Features | None = None,
        window: int = WINDOW,
        bookmark_every: float = 1.0,
        now: Callable[[], float] = time.time,
        port: int = 0,
        stand_in: StandInOptions | None = None,
        tls: bool = False,
    ) -> None:
        """``stand_in``: controllers and nodes; without it, nothing moves but by clients and the test.

        ``tls``: serve https with an authority of its own. Programs in Go send tokens over https only.
        """
        self.features = features or Features()
        self.faults = Faults(in_loop=self._in_loop)
        self.containers = Containers()
        self.objects = Objects(store=Store(window=window), kinds=Kinds(), features=self.features, now=now)
        self.access = Access(store=self.objects.store)
        self.server = Server(
            objects=self.objects,
            faults=self.faults,
            access=self.access,
            containers=self.containers,
            bookmark_every=bookmark_every,
        )
        self.garbage = Garbage(self.objects)
        self.accounts = Accounts(self.objects)
        self.objects.admit.append(self.faults.admit)
        self.quota = Quota(self.objects)
        options = stand_in or StandInOptions()
        if stand_in is not None and options.jobs:
            JobController(self.objects, options)
        self._kubelet = None
        if stand_in is not None:
            self._kubelet = Kubelet(self.objects, self.containers, options, self._in_loop)
        self.port = port
        self.tls = make_tls() if tls else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None

    # Life

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def authority(self) -> bytes:
        return self.tls.authority if self.tls else b""

    def __enter__(self) -> Self:
        started: threading.Event = threading.Event()
        trouble: list[BaseException] = []

        def run() -> None:
            try:
                asyncio.run(self.serve(started))
            except BaseException as error:
                trouble.append(error)
                started.set()

        self._thread = threading.Thread(target=run, name="fake-cluster", daemon=True)
        self._thread.start()
        assert started.wait(30), "the fake cluster did not start within 30 s"
        if trouble:
            raise trouble[0]
        return self

    def __exit__(self, *_: object) -> None:
        assert self._thread is not None
        self.stop()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the fake cluster did not stop within 30 s"

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.__exit__)

    async def serve(self, started: threading.Event | None = None) -> None:
        """Serve on the present loop until told to stop."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._begin()
        server = web.Server(self.server.handle, request_factory=_request, access_log=None)  # type: ignore[arg-type]
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        context = self.tls.context if self.tls else None
        site = web.TCPSite(runner, "127.0.0.1", self.port, backlog=1024, ssl_context=context)
        await site.start()
        self.port = runner.addresses[0][1]
        if started is not None:
            started.set()
        try:
            await self._stop.wait()
        finally:
            for _, watcher in list(self.faults.watchers):
                watcher.cut()
            for runs in self.containers.logs.values():
                for log in runs:
                    log.end()
            await runner.cleanup()

    def stop(self) -> None:
        """Tell the server to end."""
        assert self._loop and self._stop
        self._loop.call_soon_threadsafe(self._stop.set)

    def _begin(self) -> None:
        for name in NAMESPACES:
            self.objects.create(kinds.NAMESPACE, "", {"metadata": {"name": name}})

    @property
    def kubelet(self) -> Kubelet:
        """What moves Pods."""
        assert self._kubelet is not None, "this cluster was made without a stand-in"
        return self._kubelet


LARGEST_BODY = 3 * 1024 * 1024
"""Bytes of a request's body that a real server takes at most."""


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: Any,
    writer: Any,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=LARGEST_BODY)
