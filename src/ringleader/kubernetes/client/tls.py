"""The TLS side of a connection to an API server: whom we trust, what we show, and what a failure means."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ringleader.errors import Fault, RequestError


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """A client's certificate and its key, in PEM. ``repr`` shows neither."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(…)"


@dataclass(frozen=True, kw_only=True)
class Trust:
    """What a server's certificate must hold against."""

    authority: str = ""
    """Certificates of authorities, in PEM; empty: those of the system."""
    is_blind: bool = False
    """``insecure-skip-tls-verify``: any certificate will do."""
    where: str = ""
    """Where the user said so, for error texts."""


def client_context(trust: Trust, pair: KeyPair | None) -> ssl.SSLContext:
    """Return the TLS settings of a client. RequestError for a certificate or key that cannot be used."""
    if trust.is_blind:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context = _trusting(trust)
    # Certificates that kubeadm and others made for years lack what Python 3.13 began to insist on.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if pair is not None:
        _show(context, pair, trust.where)
    return context


def _trusting(trust: Trust) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=trust.authority or None)
    except (ssl.SSLError, ValueError):
        raise RequestError(
            Fault(where=trust.where, what="the certificate authority is not a certificate in PEM")
        )


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
            what = "the client certificate and its key cannot be used"
            raise RequestError(Fault(where=where, what=f"{what}: {_reason(error)}"))


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or error).replace("_", " ").lower()


def certificate_failure(error: Exception) -> tuple[str, str]:
    """Return what is wrong with the server's certificate, and what to do about it."""
    said = getattr(error, "verify_message", "") or str(error)
    hint = "see certificate-authority-data and tls-server-name in the context's cluster"
    return f"its certificate is not trusted: {said}", hint
