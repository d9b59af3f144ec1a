"""An API server's address and how we authenticate to it: headers, certificates and their renewal."""

from __future__ import annotations

import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ringleader.errors import Fault, RefusedError
from ringleader.kubernetes.client.proxy import is_loopback
from ringleader.kubernetes.client.tls import KeyPair, Trust, client_context

_REREAD_S = 10.0
"""How old a token read from a file may be. The kubelet rewrites it long before the old one ends."""


class Identity:
    """One way to prove who we are; this one is the same for good: a token, a password, a certificate."""

    def __init__(self, headers: Mapping[str, str] | None = None, certificate: KeyPair | None = None) -> None:
        """Keep what is shown."""
        self._headers = dict(headers or {})
        self.certificate = certificate
        """The certificate to show; to be read after ``headers``, which may renew it."""

    async def headers(self) -> Mapping[str, str]:
        """Return headers that are valid now, renewed where needed."""
        return self._headers

    def forget(self) -> bool:
        """Drop what is kept, as the server refused it. True where ``headers`` may now give another."""
        return False


class TokenFile(Identity):
    """A token in a file that somebody else renews: that of a Pod's service account, mostly."""

    def __init__(
        self,
        path: Path,
        *,
        certificate: KeyPair | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` gives seconds; a certificate may be shown beside the token."""
        super().__init__(certificate=certificate)
        self._path, self._clock = path, clock
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


@dataclass(kw_only=True)
class Credentials:
    """A server and a way to prove who we are."""

    server: str
    """``https://host:port``, without a slash at the end."""
    identity: Identity
    trust: Trust = field(default_factory=Trust)
    namespace: str = "default"
    """The namespace of the context, or of the Pod; ``default`` where neither says."""
    context: str = ""
    """The context's name; ``in-cluster`` for a Pod's own account."""
    extra_headers: Mapping[str, str] = field(default_factory=dict)
    """Sent besides those of the identity: whom we impersonate."""
    server_name: str = ""
    """The name that the server's certificate must have, where it is not that of the address."""
    proxy: str = ""
    """URL of the HTTP proxy on the way; empty without."""
    _shown: tuple[KeyPair | None, ssl.SSLContext] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.server = self.server.rstrip("/")

    @property
    def _is_private(self) -> bool:
        """What we send is read by the server alone."""
        return self.server.startswith("https:") or is_loopback(self.server)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """TLS settings, to be asked for after ``headers``; ``None`` for plain HTTP."""
        if not self.server.startswith("https:"):
            return None
        pair = self.identity.certificate
        if self._shown is None or self._shown[0] is not pair:
            self._shown = (pair, client_context(self.trust, pair))
        return self._shown[1]

    async def headers(self) -> dict[str, str]:
        """Return the headers of the next request, renewed where needed.

        Over plain HTTP nothing secret leaves this machine: to another one no token is sent, as by kubectl.
        """
        return {**(await self.identity.headers() if self._is_private else {}), **self.extra_headers}

    def forget(self) -> bool:
        """Drop what the server refused (401). True where it is worth trying again."""
        return self._is_private and self.identity.forget()
