"""Who we are to an API server: the headers and the certificate that say so, and how they are renewed."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from ringleader.errors import Fault, RefusedError
from ringleader.kube.tls import KeyPair

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
