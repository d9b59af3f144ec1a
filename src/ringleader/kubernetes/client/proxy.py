"""Which HTTP proxy the environment names for a server: HTTPS_PROXY, HTTP_PROXY and NO_PROXY. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


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
