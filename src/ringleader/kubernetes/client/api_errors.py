"""What an API server refused (``ApiError``), or why it did not answer (``UnreachableError``)."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from typing import Any

from ringleader.errors import Fault, RefusedError

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
"""HTTP status → the API's word for it, for answers that come from something in front of the server."""
_SHOWN = 300
"""How many characters of an answer that is not a ``Status`` are shown."""


_CONNECT = "is the server up and this context right?"


class ApiError(RefusedError):
    """The API server answered with a ``Status`` of failure."""

    def __init__(
        self, *, status: int, reason: str, message: str, where: str = "", retry_after: float | None = None
    ) -> None:
        """Keep the HTTP status, the API's one-word reason, its message and the seconds it asks us to wait."""
        self.status = status
        self.reason = reason
        self.message = message
        self.where = where
        self.retry_after = retry_after
        super().__init__(Fault(where=where, what=f"{message or reason} (HTTP {status} {reason})".strip()))

    @property
    def is_missing(self) -> bool:
        """The object, its namespace or its kind does not exist."""
        return self.status == 404

    @property
    def is_there_already(self) -> bool:
        """An object of this name exists."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_stale(self) -> bool:
        """Somebody else changed the object since we read it."""
        return self.status == 409 and self.reason != "AlreadyExists"

    @property
    def is_gone(self) -> bool:
        """The resource version is too old to list or watch from: list anew."""
        return self.status == 410 or self.reason in ("Expired", "Gone")

    @property
    def is_passing(self) -> bool:
        """The same request may succeed later without anybody changing anything."""
        return self.status in (408, 429) or self.status >= 500


class UnreachableError(RefusedError):
    """The API server did not answer: refused, reset, timed out, wrong certificate."""


def response_error(status: int, headers: Mapping[str, str], body: bytes, where: str) -> ApiError:
    """Return the error that an answer of 300 and above means. ``where`` says what was asked."""
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    pause = _seconds(headers.get("Retry-After"))
    if isinstance(said, dict) and said.get("kind") == "Status":
        return status_error(said, where, status=status, retry_after=pause)
    text = " ".join(body.decode(errors="replace").split())
    message = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    if status < 400:
        message = f"sends us to {headers.get('Location', 'nowhere')}, which no API server does"
    return ApiError(
        status=status, reason=_status_reason(status), message=message, where=where, retry_after=pause
    )


def status_error(
    said: Mapping[str, Any], where: str, *, status: int = 0, retry_after: float | None = None
) -> ApiError:
    """Return the error that a ``Status`` document means, such as that of a watch's ERROR event."""
    code = said.get("code")
    status = status or (code if isinstance(code, int) else 500)
    details = said.get("details")
    if retry_after is None and isinstance(details, dict) and details.get("retryAfterSeconds"):
        retry_after = _seconds(str(details["retryAfterSeconds"]))
    return ApiError(
        status=status,
        reason=str(said.get("reason") or "") or _status_reason(status),
        message=str(said.get("message") or ""),
        where=where,
        retry_after=retry_after,
    )


def _status_reason(status: int) -> str:
    return _REASONS.get(status, "InternalError" if status >= 500 else "Unknown")


def _seconds(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header; ``None`` for a date, which no API server sends."""
    return float(text) if text and text.isascii() and text.isdigit() else None


def connection_error(server: str, where: str, error: Exception) -> UnreachableError:
    """Return the error that a failed connection means: which server, what was asked of it, why it failed."""
    what, hint = _connection_failure(error)
    return UnreachableError(Fault(where=server, what=f"{what} ({where})", hint=hint))


def _connection_failure(error: Exception) -> tuple[str, str]:
    """Return what happened and what to do about it."""
    import aiohttp  # loaded already where a connection can fail; errors alone are used without it

    broken = "the connection broke off"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        wrong = error.certificate_error
        said = getattr(wrong, "verify_message", "") or str(wrong)
        hint = "see certificate-authority-data and tls-server-name in the context's cluster"
        return f"its certificate is not trusted: {said}", hint
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
        return f"{broken}: {os.strerror(error.errno)}", ""
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        return broken, ""
    return f"{broken}: {error or type(error).__name__}", ""
