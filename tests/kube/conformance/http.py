"""A plain HTTP client for the checks: none of the project's own, so that the judge is independent."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


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
    tls = ssl.create_default_context(cadata=_pem(cluster, "certificate-authority"))
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    certificate = _pem(user, "client-certificate")
    if certificate:
        with tempfile.TemporaryDirectory() as directory:
            files = [Path(directory) / name for name in ("certificate", "key")]
            for file, text in zip(files, (certificate, _pem(user, "client-key")), strict=True):
                file.touch(mode=0o600)
                file.write_text(text or "")
            tls.load_cert_chain(*files)
    is_plain = cluster["server"].startswith("http://")
    return Server(url=cluster["server"], token=user.get("token", ""), ssl=True if is_plain else tls)


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

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    def ok(self, *statuses: int) -> dict[str, Any]:
        """The document of an answer that is as it should be."""
        wanted = statuses or (200, 201)
        assert self.status in wanted, f"HTTP {self.status} where {wanted} was expected: {self.text}"
        return self.document

    def refused(self, status: int, reason: str = "", words: str = "") -> dict[str, Any]:
        """The Status of an answer that refuses in the expected way."""
        assert self.status == status, f"HTTP {self.status} where {status} was expected: {self.text}"
        found = self.document
        assert found["kind"] == "Status" and found["status"] == "Failure", found
        assert found["code"] == status, found
        assert reason in ("", found.get("reason")), f"reason {found.get('reason')}: {found}"
        assert words in found["message"], found["message"]
        return found


class Http:
    """One session with a server."""

    def __init__(self, server: Server, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> Answer:
        """Send a request and read its whole answer."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Accept": accept, **({"Content-Type": content_type} if data is not None else {})}
        async with self.session.request(
            method,
            f"{self.server.url}{path}",
            data=data,
            headers={**sent, **(headers or {})},
            params=query,
            ssl=self.server.ssl,
        ) as response:
            return Answer(status=response.status, body=await response.read(), headers=dict(response.headers))

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Watch]:
        """Open a watch."""
        async with self.session.get(
            f"{self.server.url}{path}", params={"watch": "true", **query}, ssl=self.server.ssl
        ) as response:
            yield Watch(response)


class Watch:
    """The lines of an open watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self._response = response
        self._rest = b""

    async def next(self, seconds: float) -> dict[str, Any] | None:
        """The next event; ``None``: the server ended the watch. AssertionError where nothing comes."""
        try:
            async with asyncio.timeout(seconds):
                while b"\n" not in self._rest:
                    chunk = await self._response.content.readany()
                    if not chunk:
                        return None
                    self._rest += chunk
        except TimeoutError:
            raise AssertionError(f"the watch told nothing within {seconds} s")
        line, self._rest = self._rest.split(b"\n", 1)
        found: dict[str, Any] = json.loads(line)
        return found


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Http]:
    """A session with a server."""
    headers = {"Authorization": f"Bearer {server.token}"} if server.token else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        yield Http(server, session)
