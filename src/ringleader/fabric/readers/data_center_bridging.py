"""Which priorities of an interface are lossless (PFC), and which DSCP goes in which: asked by netlink.

Reading needs no rights (net/dcb/dcbnl.c of Linux asks for CAP_NET_ADMIN to change things alone). Numbers are
from linux/rtnetlink.h and linux/dcbnl.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

REQUEST, GET_DCB, ERROR = 1, 78, 2
IEEE_GET, INTERFACE, IEEE, PFC, APPLICATIONS = 21, 1, 13, 2, 3
DSCP = 5
"""Selector of an application entry whose protocol is a DSCP."""
HEADER = struct.Struct("=IHHII")
MESSAGE = struct.Struct("=BBH")
ATTRIBUTE = struct.Struct("=HH")
SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Bridging:
    """What an interface's driver told."""

    lossless: tuple[int, ...]
    dscp: Mapping[int, int] = field(default_factory=dict)


def read(name: str) -> Bridging | None:
    """Return what the driver of an interface tells; ``None``: it has no such settings, or netlink fails."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as connection:
            connection.settimeout(SECONDS)
            connection.send(request(name))
            return parsed(connection.recv(65536))
    except OSError:
        return None


def request(name: str) -> bytes:
    """Return the message that asks for an interface's settings of IEEE 802.1Qaz."""
    value = name.encode() + b"\0"
    padding = b"\0" * (-len(value) % 4)
    body = (
        MESSAGE.pack(0, IEEE_GET, 0)
        + ATTRIBUTE.pack(ATTRIBUTE.size + len(value), INTERFACE)
        + value
        + padding
    )
    return HEADER.pack(HEADER.size + len(body), GET_DCB, REQUEST, 1, 0) + body


def parsed(answer: bytes) -> Bridging | None:
    """Return what an answer holds; ``None``: an error, or nothing of PFC."""
    if len(answer) < HEADER.size + MESSAGE.size or HEADER.unpack_from(answer)[1] == ERROR:
        return None
    found = dict(_attributes(answer[HEADER.size + MESSAGE.size :]))
    settings = dict(_attributes(found.get(IEEE, b"")))
    enabled = settings.get(PFC, b"")[1:2]
    if not enabled:
        return None
    # struct dcb_app: selector, priority, protocol.
    entries = [
        struct.unpack_from("=BBH", one)
        for _, one in _attributes(settings.get(APPLICATIONS, b""))
        if len(one) >= 4
    ]
    return Bridging(
        lossless=tuple(priority for priority in range(8) if enabled[0] >> priority & 1),
        dscp={protocol: priority for selector, priority, protocol in entries if selector == DSCP},
    )


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + ATTRIBUTE.size <= len(data):
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if length < ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, data[at + ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
