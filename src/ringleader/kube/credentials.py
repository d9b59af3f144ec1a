"""An API server's address and how we authenticate to it: headers, certificates and their renewal."""

from __future__ import annotations

import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from ringleader.errors import Fault, RefusedError
from ringleader.kube.proxy import is_loopback
from ringleader.kube.tls import KeyPair, Trust, client_context

_REREAD_S = 10.0
"""How old a token read from a file may be. The kubelet rewrites it long before the old one ends."""


class Identity(Protocol):
    """One way to prove who we are."""

    async def headers(self) -> Mapping[str, str]:
        """Return headers that are valid now, renewed where needed."""

    def certificate(self) -> KeyPair | None:
        """Return the certificate to show; ask after ``headers``, which may renew it."""

    def forget(self) -> bool:
        """Drop what is kept, as the server refused it. True where ``headers`` may now give another."""


class Fixed:
    """A token, a password, a certificate or nothing at all: the same for good."""

    def __init__(self, headers: Mapping[str, str] | None = None, certificate: KeyPair | None = None) -> None:
        """Keep what is shown."""
        self._headers, self._certificate = dict(headers or {}), certificate

    async def headers(self) -> Mapping[str, str]:
        """Return always the same."""
        return self._headers

    def certificate(self) -> KeyPair | None:
        """Return always the same."""
        return self._certificate

    def forget(self) -> bool:
        """There is nothing else to be had."""
        return False


class TokenFile:
    """A token in a file that somebody else renews: that of a Pod's service account, mostly."""

    def __init__(
        self,
        path: Path,
        *,
        certificate: KeyPair | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` gives seconds; a certificate may be shown beside the token."""
        self._path, self._certificate, self._clock = path, certificate, clock
        self._token, self._read_at = "", 0.0

    async def headers(self) -> Mapping[str, str]:
        """Return the token of the file as it is now, or was a few seconds ago."""
        now = self._clock()
        if not self._token or now - self._read_at >= _REREAD_S:
            self._token, self._read_at = self._read() or self._token, now
        if not self._token:
            raise RefusedError(Fault(where=str(self._path), what="holds no token"))
        return {"Authorization": f"Bearer {self._token}"}

    def _read(self) -> str:
        """Return the token; while it cannot be read the one known before is as good as any."""
        try:
            return self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._token:
                return ""
            reason = getattr(error, "strerror", None) or "not text"
            raise RefusedError(Fault(where=str(self._path), what=f"the token cannot be read: {reason}"))

    def certificate(self) -> KeyPair | None:
        """Return the certificate that is shown beside the token."""
        return self._certificate

    def forget(self) -> bool:
        """Read the file again next time: True where it holds another token by now."""
        try:
            changed = self._path.read_text(encoding="utf-8").strip() != self._token
        except (OSError, UnicodeDecodeError):
            return False
        self._read_at = -_REREAD_S
        return changed


def basic(username: str, password: str) -> dict[str, str]:
    """Return the header of a name and a password."""
    return {"Authorization": f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"}


class Credentials:
    """A server and a way to prove who we are."""

    def __init__(
        self,
        *,
        server: str,
        identity: Identity,
        trust: Trust | None = None,
        namespace: str = "default",
        context: str = "",
        headers: Mapping[str, str] | None = None,
        server_name: str = "",
        proxy: str = "",
    ) -> None:
        """Keep what was found; see the properties."""
        self._server, self._identity, self._trust = server.rstrip("/"), identity, trust or Trust()
        self._namespace, self._context, self._extra = namespace, context, dict(headers or {})
        self._server_name, self._proxy = server_name, proxy
        self._is_private = self._server.startswith("https:") or is_loopback(self._server)
        self._shown: tuple[KeyPair | None, ssl.SSLContext] | None = None

    @property
    def server(self) -> str:
        """``https://host:port``, without a slash at the end."""
        return self._server

    @property
    def namespace(self) -> str:
        """The namespace of the context, or of the Pod; ``default`` where neither says."""
        return self._namespace

    @property
    def context(self) -> str:
        """The context's name; ``in-cluster`` for a Pod's own account."""
        return self._context

    @property
    def server_name(self) -> str:
        """The name that the server's certificate must have, where it is not that of the address."""
        return self._server_name

    @property
    def proxy(self) -> str:
        """URL of the HTTP proxy on the way; empty without."""
        return self._proxy

    @property
    def ssl(self) -> ssl.SSLContext | None:
        """TLS settings, to be asked for after ``headers``; ``None`` for plain HTTP."""
        if not self._server.startswith("https:"):
            return None
        pair = self._identity.certificate()
        if self._shown is None or self._shown[0] is not pair:
            self._shown = (pair, client_context(self._trust, pair))
        return self._shown[1]

    async def headers(self) -> dict[str, str]:
        """Return the headers of the next request, renewed where needed.

        Over plain HTTP nothing secret leaves this machine: to another one no token is sent, as by kubectl.
        """
        if not self._is_private:
            return dict(self._extra)
        return {**await self._identity.headers(), **self._extra}

    def forget(self) -> bool:
        """Drop what the server refused (401). True where it is worth trying again."""
        return self._is_private and self._identity.forget()
