"""A fake cluster: its server on loopback, in a separate thread, and the handles that tests need."""

import asyncio
import base64
import datetime
import ipaddress
import ssl
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import orjson
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.kube.fake import kinds
from tests.kube.fake.access import ADMIN_TOKEN, Access, User, service_account
from tests.kube.fake.containers import Containers
from tests.kube.fake.fault_injection import Faults
from tests.kube.fake.garbage import Garbage
from tests.kube.fake.kinds import Kind, Kinds
from tests.kube.fake.objects import Objects
from tests.kube.fake.server import Server
from tests.kube.fake.simulated_job_controller import JobController, StandInOptions
from tests.kube.fake.simulated_kubelet import Kubelet
from tests.kube.fake.store import Document, Entry, Store

T = TypeVar("T")


class FakeCluster:
    """A cluster for one test. Use it as a context manager.

    Methods may be called from any thread but the server's; what they do, they do on the server's own loop.
    """

    def __init__(
        self,
        *,
        window: int = 20_000,
        bookmark_every: float = 1.0,
        stand_in: StandInOptions | None = None,
        tls: bool = False,
    ) -> None:
        """``window``: events of each kind that a watch may be behind.

        ``stand_in``: controllers and nodes; without it, nothing moves but by clients and the test.

        ``tls``: serve https with a certificate that clients must trust. Programs in Go send tokens over
        https only.
        """
        self.faults = Faults(in_loop=self._in_loop)
        self.containers = Containers()
        self.objects = Objects(store=Store(window=window), kinds=Kinds(), now=time.time)
        self.access = Access(store=self.objects.store)
        self.server = Server(
            objects=self.objects,
            faults=self.faults,
            access=self.access,
            containers=self.containers,
            bookmark_every=bookmark_every,
        )
        Garbage(self.objects)
        if stand_in is not None:
            JobController(self.objects)
            self.kubelet = Kubelet(self.objects, self.containers, stand_in, self._in_loop)
        self.port = 0
        self.authority, self._ssl = _own_certificate() if tls else (b"", None)
        """PEM of the authority that clients trust; empty without TLS."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake-cluster", daemon=True)

    # Life

    @property
    def url(self) -> str:
        return f"{'https' if self._ssl else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(30) and self.port, "the fake cluster did not start within 30 s"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive(), "the fake cluster did not stop within 30 s"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        for name in ("default", "kube-system"):
            self.objects.create(kinds.NAMESPACE, "", {"metadata": {"name": name}})
        server = web.Server(self.server.handle, request_factory=_request, access_log=None)  # type: ignore[arg-type]
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024, ssl_context=self._ssl).start()
        self.port = runner.addresses[0][1]
        self._started.set()
        try:
            await self._stop.wait()
        finally:
            for watcher in self.faults.watchers:
                watcher.cut()
            for runs in self.containers.logs.values():
                for log in runs:
                    log.end()
            await runner.cleanup()

    # Calls from other threads

    def call(self, work: Callable[[], T]) -> T:
        """Do something on the server's loop and return what comes out."""

        async def do() -> T:
            return work()

        return self.run(do())

    def run(self, work: Awaitable[T]) -> T:
        """Await something on the server's loop and return what comes out."""

        async def do() -> T:
            return await work

        if threading.current_thread() is self._thread:
            raise RuntimeError("call this from outside of the server's loop")
        return asyncio.run_coroutine_threadsafe(do(), self._loop).result(60)

    def _in_loop(self, work: Callable[[], None]) -> None:
        if self._loop is None or threading.current_thread() is self._thread:
            work()
        else:
            self.call(work)

    # What tests need at hand

    def write_kubeconfig(self, path: Path, *, token: str = ADMIN_TOKEN, namespace: str = "default") -> Path:
        """Write a kubeconfig for a token: one context, as JSON, which is YAML too."""
        trust = {"certificate-authority-data": base64.b64encode(self.authority).decode()}
        cluster = {"server": self.url, **(trust if self.authority else {})}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": "fake", "user": {"token": token}}],
            "contexts": [
                {"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": namespace}}
            ],
        }
        path.write_bytes(orjson.dumps(document))
        return path

    def add_user(self, name: str) -> str:
        """Let somebody in; return the token. What they may do, Roles and bindings say."""
        self.access.tokens[f"{name}-token"] = User(name=name)
        return f"{name}-token"

    def add_service_account(self, namespace: str, name: str) -> str:
        """Return a token of a ServiceAccount."""
        token = f"{namespace}-{name}-token"
        self.access.tokens[token] = service_account(namespace, name)
        return token

    def kind(self, plural: str) -> Kind:
        """A kind by the name of its resource."""
        return next(one for one in self.objects.kinds if one.plural == plural)

    def create(self, document: Mapping[str, Any], namespace: str = "") -> Document:
        """Make an object without a client; its namespace is ``default`` unless it says otherwise."""
        copy = orjson.loads(orjson.dumps(document))

        def work() -> Document:
            kind = self.objects.kinds.of_document(copy)
            assert kind is not None, f"no such kind: {copy.get('apiVersion')} {copy.get('kind')}"
            place = (namespace or copy["metadata"].get("namespace", "default")) if kind.namespaced else ""
            return orjson.loads(self.objects.create(kind, place, copy))

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
        self, plural: str, name: str, edit: Callable[[Document], Any], namespace: str = "default"
    ) -> None:
        """Change any part of an object, status among it, without a client."""

        def work(kind: Kind, entry: Entry) -> None:
            document = entry.document()
            edit(document)
            self.objects.store.write(self.objects.store.collection(kind), document, entry)

        self._with(plural, name, namespace, work)

    def delete(self, plural: str, name: str, namespace: str = "default") -> None:
        """Delete an object in the background, without a grace period."""
        self._with(plural, name, namespace, lambda *found: self.objects.delete(*found, grace=0))

    def _with(self, plural: str, name: str, namespace: str, work: Callable[[Kind, Entry], T]) -> T:
        def do() -> T:
            kind = self.kind(plural)
            return work(kind, self.objects.find(kind, namespace if kind.namespaced else "", name))

        return self.call(do)

    def compact(self) -> None:
        """Forget history: watches and pages from before get 410 Gone."""
        self.call(self.objects.store.compact)

    def write_log(self, pod: str, text: str, *, namespace: str = "default") -> None:
        """Let the first container of a Pod say something."""

        def work(_: Kind, entry: Entry) -> None:
            name = entry.document()["spec"]["containers"][0]["name"]
            self.containers.log(namespace, entry.uid, name).write(text.encode())

        self._with("pods", pod, namespace, work)


LARGEST_BODY = 3 * 1024 * 1024
"""Bytes of a request's body that a real server takes at most."""


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=LARGEST_BODY)


def self_signed(name: str) -> tuple[bytes, bytes]:
    """A certificate for a name and 127.0.0.1 that is its own authority, and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form, secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    return made.public_bytes(pem), key.private_bytes(pem, form, secret)


def _own_certificate() -> tuple[bytes, ssl.SSLContext]:
    certificate, key = self_signed("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:  # for its owner alone
        file.write(certificate + key)
        file.flush()
        context.load_cert_chain(file.name)
    return certificate, context
