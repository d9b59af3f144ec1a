"""What is told when no answer came from an API server."""

from __future__ import annotations

import os
import ssl

import aiohttp

from ringleader.errors import Fault
from ringleader.kube.cluster import UnreachableError

_CERTIFICATE = "see certificate-authority-data and tls-server-name in the context's cluster"
_CONNECT = "is the server up and this context right?"


def unreachable(server: str, where: str, error: Exception) -> UnreachableError:
    """Return the error that a failed connection means: which server, what was asked of it, why it failed."""
    what, hint = _reason(error)
    return UnreachableError(Fault(where=server, what=f"{what} ({where})", hint=hint))


def _reason(error: Exception) -> tuple[str, str]:
    """Return what happened and what to do about it."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _certificate(error.certificate_error)
    if isinstance(error, aiohttp.ClientSSLError):
        return f"TLS failed: {error.os_error}", "is this the API server's port, and does it speak TLS?"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved", "is the server of this context right?"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy refused: {error.status} {error.message}", ""
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"no connection: {os.strerror(number) if number else error.os_error}", _CONNECT
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}", ""
    if isinstance(error, aiohttp.ServerTimeoutError):
        return "no connection: timed out", _CONNECT
    if isinstance(error, OSError) and error.errno:
        return f"the connection broke off: {os.strerror(error.errno)}", ""
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        return "the connection broke off", ""
    return f"the connection broke off: {error or type(error).__name__}", ""


def _certificate(error: Exception) -> tuple[str, str]:
    said = getattr(error, "verify_message", "") or str(error)
    return f"its certificate is not trusted: {said}", _CERTIFICATE
