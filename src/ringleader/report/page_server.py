"""A few pages at a loopback address, made anew when what they show has changed.

Only GET, only the paths that ``Pages`` knows, only requests whose Host is a name of this machine's loopback:
a page of another site, whose name was made to lead here (DNS rebinding), reads nothing. The script of a page
asks for its version once a second and loads the page again where that is another one
(``templates/base.html``); the Content-Security-Policy allows that script by its nonce and nothing else.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

LOOPBACK = "127.0.0.1"
POLL_SECONDS = 1.0
SILENCE_SECONDS = 10.0
"""A connection that says nothing for this long is closed."""
VERSION = "version"
"""Query: ``/runs/a?version`` is that of the page ``/runs/a``."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """What one path shows."""

    version: Callable[[], str]
    """Cheap; another text once the page would be another one."""
    page: Callable[[Mapping[str, object]], str]
    """Return the page, given what its script is made of."""
    rest: float = 0.0
    """For how many times what making it took the page stays as it is: what it shows changes all the time."""


Pages = Callable[[str], Source | None]
"""Path, decoded, without the slashes around it → what it shows; ``None``: there is no such page."""


class PageServer(ThreadingHTTPServer):
    """Serves until it is shut down."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, pages: Pages, port: int, *, tell: Callable[[str], None]) -> None:
        """Listen on the loopback address; port 0 takes a free one. Raises OSError."""
        super().__init__((LOOPBACK, port), _Handler)
        self.pages = pages
        self._tell = tell
        self._lock = threading.Lock()  # matplotlib's settings are global
        self._made: dict[str, tuple[str, str, str]] = {}
        self._rests: dict[str, float] = {}
        """Path → until when (``time.monotonic``) its page stays as it is."""

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    def is_ours(self, host: str) -> bool:
        """Tell whether a Host header names this server."""
        return host.lower() in {f"{name}:{self.port}" for name in (LOOPBACK, "localhost")}

    def page(self, path: str, source: Source) -> tuple[str, str]:
        """Return (page, nonce of its script); made once for each version."""
        with self._lock:
            version = self._version(path, source)
            if path not in self._made or self._made[path][0] != version:
                began = time.monotonic()
                nonce = secrets.token_urlsafe(16)
                follow = {
                    "nonce": nonce,
                    "version": version,
                    "address": f"/{quote(os.fsencode(path))}?{VERSION}",
                    "milliseconds": int(1000 * POLL_SECONDS),
                }
                self._made[path] = (version, source.page(follow), nonce)
                now = time.monotonic()
                self._rests[path] = now + (now - began) * source.rest
            _version, page, nonce = self._made[path]
            return page, nonce

    def version(self, path: str, source: Source) -> str:
        """Return the version of the page that a request would get now."""
        with self._lock:
            return self._version(path, source)

    def _version(self, path: str, source: Source) -> str:
        if source.rest and time.monotonic() < self._rests.get(path, 0.0):
            return self._made[path][0]
        return source.version()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell what went wrong in one line; nothing of a browser that closed its connection."""
        error = sys.exception()
        if not isinstance(error, OSError):
            self._tell(f"a page failed: {type(error).__name__}: {error}")


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = SILENCE_SECONDS
    server_version = "ringleader"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if not self.server.is_ours(self.headers.get("Host", "")):
            return self._answer(HTTPStatus.FORBIDDEN, "this server answers to its own address only\n")
        path, _, query = self.path.partition("?")
        # Decoded: what is made is kept by its path, and each page has one.
        path = unquote(path, errors="surrogateescape").strip("/")
        source = self.server.pages(path)
        if source is None:
            return self._answer(HTTPStatus.NOT_FOUND, "there is no such page\n")
        if query == VERSION:
            return self._answer(HTTPStatus.OK, self.server.version(path, source))
        try:
            page, nonce = self.server.page(path, source)
        except Exception as error:  # one run that cannot be drawn takes nothing from the others' pages
            what = f"a page failed: {type(error).__name__}: {error}\n"
            return self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, what)
        policy = f"script-src 'nonce-{nonce}'; connect-src 'self'; "
        return self._answer(HTTPStatus.OK, page, "text/html", policy)

    def parse_request(self) -> bool:
        """Read the request; answer here what is not a GET."""
        if not super().parse_request():
            return False
        if self.command == "GET":
            return True
        self.close_connection = True  # whatever body it has is not read
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET\n")
        return False

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain", policy: str = "") -> None:
        data = text.encode("utf-8", errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        allowed = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        self.send_header(
            "Content-Security-Policy", f"{allowed}{policy}frame-ancestors 'none'; base-uri 'none'"
        )
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no line for each request."""
