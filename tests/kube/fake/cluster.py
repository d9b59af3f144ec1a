"""A fake cluster: its server on loopback, in a thread of its own, and the handles that tests need."""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import orjson
from aiohttp import StreamReader, web
from aiohttp.http_parser import RawRequestMessage
from tests.kube.fake import access, kinds
from tests.kube.fake.access import Access, User
from tests.kube.fake.accounts import Accounts
from tests.kube.fake.containers import Containers, Handler
from tests.kube.fake.faults import Faults
from tests.kube.fake.features import Features
from tests.kube.fake.garbage import Garbage
from tests.kube.fake.kinds import Kind, Kinds
from tests.kube.fake.objects import Objects
from tests.kube.fake.quota import Quota
from tests.kube.fake.server import Server
from tests.kube.fake.standin import StandInOptions
from tests.kube.fake.standin_jobs import JobController
from tests.kube.fake.standin_kubelet import Kubelet
from tests.kube.fake.store import Document, Store
from tests.kube.fake.tls import make as make_tls

T = TypeVar("T")
WINDOW = 20_000
"""Events of each kind that a watch may be behind."""
NAMESPACES = ("default", "kube-system", "kube-public")


class FakeCluster:
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

    # Calls from other threads

    def call(self, work: Callable[[], T]) -> T:
        """Do something on the server's loop and return what comes out."""

        async def do() -> T:
            return work()

        return self.run(do())

    def run(self, work: Awaitable[T]) -> T:
        """Await something on the server's loop and return what comes out."""
        assert self._loop is not None, "the cluster has not been started"

        async def do() -> T:
            return await work

        if self._loop is _running_loop():
            raise RuntimeError("call this from outside of the server's loop")
        return asyncio.run_coroutine_threadsafe(do(), self._loop).result(60)

    def _in_loop(self, work: Callable[[], None]) -> None:
        if self._loop is None or self._loop is _running_loop():
            work()
        else:
            self.call(work)

    # What tests need at hand

    def write_kubeconfig(
        self, path: Path, *, token: str = access.ADMIN_TOKEN, namespace: str = "default"
    ) -> Path:
        """Write a kubeconfig for a token."""
        authority = self.tls.authority if self.tls else b""
        path.write_bytes(kubeconfig(self.url, token, namespace, authority))
        return path

    def add_user(self, name: str, *groups: str, token: str = "") -> str:
        """Let somebody in; return the token. What they may do, Roles and bindings say."""
        token = token or f"{name}-token"
        user = User(name=name, groups=(*groups, "system:authenticated"))
        self.call(lambda: self.access.tokens.__setitem__(token, user))
        return token

    def add_service_account(self, namespace: str, name: str) -> str:
        """Return a token of a ServiceAccount."""
        token = f"{namespace}-{name}-token"
        user = access.service_account(namespace, name)
        self.call(lambda: self.access.tokens.__setitem__(token, user))
        return token

    def kind(self, plural: str, group: str = "") -> Kind:
        """A kind by the name of its resource; its group only where the name is not enough."""
        return next(one for one in self.objects.kinds if one.plural == plural and group in ("", one.group))

    def create(self, document: Mapping[str, Any], namespace: str = "") -> Document:
        """Make an object without a client; its namespace is ``default`` unless it says otherwise."""
        copy = orjson.loads(orjson.dumps(document))

        def work() -> Document:
            kind = self.objects.kinds.of_document(copy)
            assert kind is not None, f"no such kind: {copy.get('apiVersion')} {copy.get('kind')}"
            place = (namespace or copy["metadata"].get("namespace", "default")) if kind.namespaced else ""
            return _document(self.objects.create(kind, place, copy))

        return self.call(work)

    def get(self, plural: str, name: str, namespace: str = "default") -> Document | None:
        """An object as stored, or ``None``."""

        def work() -> Document | None:
            kind = self.kind(plural)
            key = (namespace if kind.namespaced else "", name)
            entry = self.objects.store.collection(kind).entries.get(key)
            return None if entry is None else entry.document()

        return self.call(work)

    def list(self, plural: str, namespace: str = "") -> list[Document]:
        """Objects as stored, by namespace and name."""

        def work() -> list[Document]:
            found = self.objects.store.collection(self.kind(plural)).select(namespace)
            return [found[key].document() for key in sorted(found)]

        return self.call(work)

    def change(
        self, plural: str, name: str, edit: Callable[[Document], None], namespace: str = "default"
    ) -> Document:
        """Change any part of an object, status among it, without a client."""

        def work() -> Document:
            kind = self.kind(plural)
            entry = self.objects.find(kind, namespace if kind.namespaced else "", name)
            document = entry.document()
            edit(document)
            collection = self.objects.store.collection(kind)
            return self.objects.store.write(collection, document, entry).document()

        return self.call(work)

    def delete(self, plural: str, name: str, namespace: str = "default") -> None:
        """Delete an object at once, in the background."""
        from tests.kube.fake.options import DeleteOptions

        def work() -> None:
            kind = self.kind(plural)
            entry = self.objects.find(kind, namespace if kind.namespaced else "", name)
            self.objects.delete(kind, entry, DeleteOptions(propagation="Background", grace=0))

        self.call(work)

    def compact(self, keep: int = 0) -> None:
        """Forget history: watches and pages from before get 410 Gone."""
        self.call(lambda: self.objects.store.compact(keep))

    def write_log(self, pod: str, text: str, *, container: str = "", namespace: str = "default") -> None:
        """Let a container say something."""

        def work() -> None:
            entry = self.objects.find(kinds.POD, namespace, pod)
            name = container or entry.document()["spec"]["containers"][0]["name"]
            self.containers.log(namespace, entry.uid, name).write(text.encode())

        self.call(work)

    def execute_with(self, handler: Handler) -> None:
        """Say how commands run in containers."""
        self.call(lambda: setattr(self.containers, "handler", handler))


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


def kubeconfig(url: str, token: str, namespace: str, authority: bytes = b"") -> bytes:
    """A kubeconfig with one context, as JSON, which is YAML too."""
    trust = {"certificate-authority-data": base64.b64encode(authority).decode()} if authority else {}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "clusters": [{"name": "fake", "cluster": {"server": url, **trust}}],
        "users": [{"name": "fake", "user": {"token": token}}],
        "contexts": [
            {"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": namespace}}
        ],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def _document(encoded: bytes) -> Document:
    found: Document = orjson.loads(encoded)
    return found


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
