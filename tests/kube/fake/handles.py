"""What a test does with a fake cluster besides asking its server: from any thread, without a client."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import orjson
from tests.kube.fake import access, kinds
from tests.kube.fake.access import Access, User
from tests.kube.fake.containers import Containers, Handler
from tests.kube.fake.kinds import Kind
from tests.kube.fake.objects import Objects
from tests.kube.fake.options import DeleteOptions
from tests.kube.fake.store import Document

T = TypeVar("T")


class Handles:
    """The methods of a cluster that tests have at hand. What they do, they do on the server's own loop."""

    objects: Objects
    access: Access
    containers: Containers
    _loop: asyncio.AbstractEventLoop | None

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def authority(self) -> bytes:
        """PEM of the authority that clients trust; empty without TLS."""
        raise NotImplementedError

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

        if self._loop is running_loop():
            raise RuntimeError("call this from outside of the server's loop")
        return asyncio.run_coroutine_threadsafe(do(), self._loop).result(60)

    def _in_loop(self, work: Callable[[], None]) -> None:
        if self._loop is None or self._loop is running_loop():
            work()
        else:
            self.call(work)

    # What tests need at hand

    def write_kubeconfig(
        self, path: Path, *, token: str = access.ADMIN_TOKEN, namespace: str = "default"
    ) -> Path:
        """Write a kubeconfig for a token."""
        path.write_bytes(kubeconfig(self.url, token, namespace, self.authority))
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


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
