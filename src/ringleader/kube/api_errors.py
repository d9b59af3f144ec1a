"""What an API server's answers mean: failures become ``ApiError``, a stream becomes changes. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ringleader.kube.cluster import ApiError, Change, Object

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
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_SHOWN = 300
"""How many characters of an answer that is no Status are shown."""


def error_of(status: int, headers: Mapping[str, str], body: bytes, where: str) -> ApiError:
    """Return the error that an answer of 300 and above means. ``where`` says what was asked."""
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    pause = _seconds(headers.get("Retry-After"))
    if isinstance(said, dict) and said.get("kind") == "Status":
        return error_of_status(said, where, status=status, retry_after=pause)
    text = " ".join(body.decode(errors="replace").split())
    message = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    if 300 <= status < 400:
        message = f"sends us to {headers.get('Location', 'nowhere')}, which no API server does"
    return ApiError(status=status, reason=_reason(status), message=message, where=where, retry_after=pause)


def error_of_status(
    said: Object, where: str, *, status: int = 0, retry_after: float | None = None
) -> ApiError:
    """Return the error that a ``Status`` document means, such as that of a watch's ERROR event."""
    code = said.get("code")
    status = status or (code if isinstance(code, int) else 500)
    details = said.get("details")
    if retry_after is None and isinstance(details, dict) and details.get("retryAfterSeconds"):
        retry_after = _seconds(str(details["retryAfterSeconds"]))
    return ApiError(
        status=status,
        reason=str(said.get("reason") or "") or _reason(status),
        message=str(said.get("message") or ""),
        where=where,
        retry_after=retry_after,
    )


def _reason(status: int) -> str:
    return _REASONS.get(status, "InternalError" if status >= 500 else "Unknown")


def _seconds(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header; ``None`` for a date, which no API server sends."""
    return float(text) if text and text.isascii() and text.isdigit() else None


def warnings_of(headers: Iterable[str]) -> list[str]:
    """Return the texts of ``Warning`` headers: code, agent, quoted text (RFC 7234, section 5.5)."""
    found = []
    for header in headers:
        for quoted in _WARNING.findall(header):
            text = re.sub(r"\\(.)", r"\1", quoted)
            if text and text not in found:
                found.append(text)
    return found


class Lines:
    """Cuts a stream into lines, wherever its chunks end."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._pieces: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that a chunk completes, without their ends and without empty ones."""
        *complete, rest = chunk.split(b"\n")
        if complete and self._pieces:
            complete[0] = b"".join((*self._pieces, complete[0]))
            self._pieces.clear()
        if rest:
            self._pieces.append(rest)
        return [line for line in complete if line.strip()]

    def rest(self) -> bytes:
        """Return what came after the last end of a line."""
        return b"".join(self._pieces)


def change_of(line: bytes, where: str) -> Change:
    """Return the change that a line of a watch tells. ApiError for an ERROR event, ValueError for no JSON."""
    event: Any = json.loads(line)
    kind, value = (event.get("type"), event.get("object")) if isinstance(event, dict) else (None, None)
    if not isinstance(value, dict):
        raise ValueError("no event of a watch")
    if kind == "ERROR":
        raise error_of_status(value, where)
    if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
        raise ValueError(f"an event of the type {kind!r}")
    return Change(type=kind, object=value)
