"""The ground that checks stand on: a separate namespace in a cluster, fake or real, and a plain HTTP client.

None of the project's own client is used, so that the judge is independent.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from tests import mpijobs
from tests.kube.fake import FakeCluster
from tests.time_limits import patience

MERGE = "application/merge-patch+json"
PATIENCE = 60.0
"""Seconds that anything may take to come about where it is expected to."""
Document = dict[str, Any]
IMAGE = "registry.k8s.io/e2e-test-images/busybox:1.29-4"
RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, kw_only=True)
class Server:
    """Where a server is and how it knows us."""

    url: str
    token: str = ""
    ssl: ssl.SSLContext | bool = True


def server_of(path: Path) -> Server:
    """The server of a kubeconfig's current context: token or client certificate."""
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    if cluster["server"].startswith("http://"):
        return Server(url=cluster["server"], token=user.get("token", ""))
    tls = ssl.create_default_context(cadata=_pem(cluster, "certificate-authority"))
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if certificate := _pem(user, "client-certificate"):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(certificate + (_pem(user, "client-key") or ""))
            file.flush()
            tls.load_cert_chain(file.name)
    return Server(url=cluster["server"], token=user.get("token", ""), ssl=tls)


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(one for one in items if one["name"] == name)


def _pem(section: Mapping[str, str], word: str) -> str | None:
    if f"{word}-data" in section:
        return base64.b64decode(section[f"{word}-data"]).decode()
    return Path(os.path.expanduser(section[word])).read_text() if word in section else None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server answered."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.body.decode()

    def ok(self, *statuses: int) -> Document:
        """The document of an answer that is as it should be."""
        wanted = statuses or (200, 201)
        assert self.status in wanted, f"HTTP {self.status} where {wanted} was expected: {self.text}"
        return json.loads(self.body)

    def refused(self, status: int, reason: str = "", words: str = "") -> Document:
        """The Status of an answer that refuses in the expected way."""
        found = self.ok(status)
        assert (found["kind"], found["status"], found["code"]) == ("Status", "Failure", status), found
        assert reason in ("", found.get("reason")), f"reason {found.get('reason')}: {found}"
        assert words in found["message"], found["message"]
        return found


class Watch:
    """The lines of an open watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response, self._rest = response, b""

    async def any(self) -> Document | None:
        """The next event; ``None``: the server ended the watch. AssertionError where nothing comes."""
        try:
            async with asyncio.timeout(PATIENCE):
                while b"\n" not in self._rest:
                    chunk = await self._response.content.readany()
                    if not chunk:
                        return None
                    self._rest += chunk
        except TimeoutError:
            raise AssertionError(f"the watch told nothing within {PATIENCE} s")
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    async def next(self) -> Document:
        """The next event of what the check itself has made.

        A bookmark may come at any time, and a cluster's own controllers put a ConfigMap into every namespace.
        """
        while True:
            found = await self.any()
            assert found is not None, "the watch ended"
            name = found["object"].get("metadata", {}).get("name")
            if found["type"] != "BOOKMARK" and name != "kube-root-ca.crt":
                return found

    async def shown(self, count: int) -> list[tuple[str, str]]:
        """Type and name of the next events."""
        found = [await self.next() for _ in range(count)]
        return [(one["type"], one["object"]["metadata"]["name"]) for one in found]


@dataclass(kw_only=True)
class Ground:
    """What a check works with."""

    server: Server
    session: aiohttp.ClientSession
    namespace: str
    fake: FakeCluster | None = None

    # Requests

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> Answer:
        """Send a request and read its whole answer."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Accept": "application/json", **({"Content-Type": content_type} if body is not None else {})}
        async with self.session.request(
            method,
            f"{self.server.url}{path}",
            data=data,
            headers={**sent, **(headers or {})},
            params=query,
            ssl=self.server.ssl,
        ) as response:
            found = {name: ", ".join(response.headers.getall(name)) for name in response.headers}
            return Answer(status=response.status, body=await response.read(), headers=found)

    async def create(self, path: str, document: Document, **query: str) -> Document:
        return (await self.call("POST", path, document, **query)).ok(201)

    async def get(self, path: str, **query: str) -> Document:
        return (await self.call("GET", path, **query)).ok(200)

    async def patch(self, path: str, body: Any, content_type: str = MERGE, **query: str) -> Answer:
        return await self.call("PATCH", path, body, content_type=content_type, **query)

    async def change(self, path: str, body: Document) -> Document:
        return (await self.patch(path, body)).ok(200)

    async def delete(self, path: str, **options: Any) -> Answer:
        return await self.call("DELETE", path, {"propagationPolicy": "Background", **options})

    async def exists(self, path: str) -> bool:
        return (await self.call("GET", path)).status == 200

    async def names(self, path: str, **query: str) -> list[str]:
        """Names of the objects that a list returns, without what the cluster puts into every namespace."""
        found = [one["metadata"]["name"] for one in (await self.get(path, **query))["items"]]
        return sorted(name for name in found if name != "kube-root-ca.crt")

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Watch]:
        """Open a watch."""
        url, params = f"{self.server.url}{path}", {"watch": "true", **query}
        async with self.session.get(url, params=params, ssl=self.server.ssl) as response:
            yield Watch(response)

    # Things

    def path(self, plural: str, group_version: str = "") -> str:
        """The path of a collection in the check's namespace."""
        prefix = f"/apis/{group_version}" if group_version else "/api/v1"
        return f"{prefix}/namespaces/{self.namespace}/{plural}"

    @property
    def pods(self) -> str:
        return self.path("pods")

    @property
    def maps(self) -> str:
        return self.path("configmaps")

    @property
    def jobs(self) -> str:
        return self.path("jobs", "batch/v1")

    @property
    def mpijobs(self) -> str:
        return self.path("mpijobs", "kubeflow.org/v2beta1")

    async def version(self) -> str:
        """The version at which the ConfigMaps are now."""
        return str((await self.get(self.maps))["metadata"]["resourceVersion"])

    async def map(self, name: str = "map", **metadata: Any) -> Document:
        """Make a ConfigMap."""
        return await self.create(self.maps, {"metadata": {"name": name, **metadata}, "data": {"a": "1"}})

    async def run_pod(self, name: str, *lines: str) -> str:
        """Make a Pod that says some lines and runs on; return its path."""
        words = " ".join(f"echo {line};" for line in lines)
        await self.create(self.pods, pod(name, command=["sh", "-c", f"{words} sleep 3600"]))
        text = "".join(f"{line}\n" for line in lines)
        await self.on_fake(lambda fake: fake.kubelet.run(name, self.namespace))
        await self.on_fake(lambda fake: fake.write_log(name, text, namespace=self.namespace))
        path = f"{self.pods}/{name}"

        async def says() -> bool:
            is_running = (await self.get(path))["status"]["phase"] == "Running"
            return is_running and (await self.call("GET", f"{path}/log")).text == text

        await self.until(f"Pod {name} runs", says)
        return path

    async def until(self, what: str, test: Callable[[], Awaitable[bool]]) -> None:
        """Wait for something to come about."""
        loop = asyncio.get_running_loop()
        end = loop.time() + patience(PATIENCE)
        while not await test():
            assert loop.time() < end, f"not within {PATIENCE} s: {what}"
            await asyncio.sleep(0.02)

    async def gone(self, path: str) -> None:
        """Wait until an object has gone."""

        async def test() -> bool:
            return not await self.exists(path)

        await self.until(f"{path} is gone", test)

    async def on_fake(self, work: Callable[[FakeCluster], Any]) -> None:
        """Do something to the fake that real clusters do by themselves, or in time."""
        if (fake := self.fake) is not None:
            await asyncio.to_thread(lambda: work(fake))

    async def eve(self, *rules: Document) -> Mapping[str, str]:
        """Headers of another user with a Role: by a token on the fake, by impersonation on a real cluster."""
        role = {"metadata": {"name": "role"}, "rules": list(rules)}
        await self.create(self.path("roles", f"{RBAC}/v1"), role)
        binding = {
            "metadata": {"name": "binding"},
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "role"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "eve"}],
        }
        await self.create(self.path("rolebindings", f"{RBAC}/v1"), binding)
        if self.fake is None:
            return {"Impersonate-User": "eve"}
        return {"Authorization": f"Bearer {self.fake.add_user('eve')}"}


def pod(name: str = "pod", *, command: list[str] | None = None, **spec: Any) -> Document:
    """A Pod that any cluster takes."""
    container = {"name": "main", "image": IMAGE, **({"command": command} if command else {})}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def job(name: str = "job", **spec: Any) -> Document:
    """A suspended Job: nothing of it runs."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": IMAGE}]}}
    return {"metadata": {"name": name}, "spec": {"suspend": True, "template": template, **spec}}


def mpijob(name: str = "train", **spec: Any) -> Document:
    """The smallest MPIJob with workers."""
    return mpijobs.mpijob(name, image=IMAGE, **spec)


@asynccontextmanager
async def ground(server: Server, fake: FakeCluster | None) -> AsyncIterator[Ground]:
    """A session with a server and a namespace in it, which goes in the end."""
    headers = {"Authorization": f"Bearer {server.token}"} if server.token else {}
    async with aiohttp.ClientSession(headers=headers) as session:
        name = f"conformance-{uuid.uuid4().hex[:10]}"
        found = Ground(server=server, session=session, namespace=name, fake=fake)
        await found.create("/api/v1/namespaces", {"metadata": {"name": name}})
        try:
            yield found
        finally:
            await found.delete(f"/api/v1/namespaces/{name}")
