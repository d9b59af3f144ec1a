"""An API server's address and how we authenticate to it: headers, certificates, TLS, the proxy on the way.

`kubeconfig` reads which of it is meant, `credential_plugin` runs programs that give credentials.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ringleader.errors import Fault, RefusedError, RequestError

_REREAD_S = 10.0
"""How old a token read from a file may be. The kubelet rewrites it long before the old one ends."""


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """A client's certificate and its key, in PEM. ``repr`` shows neither."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(…)"


@dataclass(frozen=True, kw_only=True)
class Trust:
    """What a server's certificate is checked against."""

    authority: str = ""
    """Certificates of authorities, in PEM; empty: those of the system."""
    is_blind: bool = False
    """``insecure-skip-tls-verify``: any certificate will do."""
    where: str = ""
    """Where the user said so, for error texts."""


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


def client_context(trust: Trust, pair: KeyPair | None) -> ssl.SSLContext:
    """Return the TLS settings of a client. RequestError for a certificate or key that cannot be used."""
    try:
        context = ssl.create_default_context(cadata=None if trust.is_blind else trust.authority or None)
    except (ssl.SSLError, ValueError):
        what = "the certificate authority is not a certificate in PEM"
        raise RequestError(Fault(where=trust.where, what=what))
    if trust.is_blind:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # Certificates that kubeadm and others made for years lack what Python 3.13 began to insist on.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if pair is not None:
        _show(context, pair, trust.where)
    return context


def _show(context: ssl.SSLContext, pair: KeyPair, where: str) -> None:
    """Load a key pair. OpenSSL reads files only: they live in a folder of ours for just that long."""
    with tempfile.TemporaryDirectory(prefix="ringleader-") as folder:
        chain, key = Path(folder) / "chain", Path(folder) / "key"
        chain.write_bytes(pair.certificate)
        key.touch(mode=0o600)
        key.write_bytes(pair.key)
        try:
            # An encrypted key would make OpenSSL ask on the terminal: an empty password makes it fail.
            context.load_cert_chain(chain, key, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = str(getattr(error, "reason", None) or error).replace("_", " ").lower()
            what = f"the client certificate and its key cannot be used: {reason}"
            raise RequestError(Fault(where=where, what=what))


def proxy_of(server: str, environ: Mapping[str, str]) -> str:
    """Return the proxy's URL, empty for none. Loopback is never reached through one."""
    parts = urlsplit(server)
    host = (parts.hostname or "").lower()
    name = f"{parts.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name, "")
    if not proxy or not host or is_loopback(server):
        return ""
    excluded = environ.get("NO_PROXY") or environ.get("no_proxy", "")
    if any(_covers(word.strip().lower(), host) for word in excluded.split(",")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def is_loopback(server: str) -> bool:
    """True where a server's address never leaves this machine."""
    host = (urlsplit(server).hostname or "").lower()
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _covers(word: str, host: str) -> bool:
    """True where an item of NO_PROXY means a host: ``*``, an address, a range of them, a domain."""
    if not word:
        return False
    if word == "*":
        return True
    address = _address(host)
    if address is not None:
        try:
            return address in ipaddress.ip_network(word, strict=False)
        except ValueError:
            return False
    return host == word.lstrip(".") or host.endswith("." + word.removeprefix("*").lstrip("."))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
