"""Network interfaces of this network namespace, by /sys/class/net; of RDMA's what netlink tells (PFC, DSCP).

Reading by netlink needs no rights (net/dcb/dcbnl.c of Linux asks for CAP_NET_ADMIN to change things alone).
Numbers are from linux/rtnetlink.h and linux/dcbnl.h.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ringleader.agents.sysfs import KINDS
from ringleader.fabric.facts import NetDevice
from ringleader.fabric.readers.sysfs_files import Files, pci_address

CLASS = "sys/class/net"
MOST_DEVICES = 512
"""Interfaces that are read; those with an address and those of whole devices come first."""
UNKNOWN_SPEED = 0xFFFFFFFF
OF_DRIVER = re.compile(
    r"[rt]x_(?:vport_rdma_(?:uni|multi)cast_(?:bytes|packets)|(?:discards|symbol_err|crc_errors)_phy"
    r"|(?:global|prio[0-7])_pause|prio[0-7]_discards|out_of_buffer)"
)
"""Statistics of drivers that matter to RDMA: bytes of verbs, pauses, discards."""

REQUEST, GET_DCB, ERROR = 1, 78, 2
IEEE_GET, INTERFACE, IEEE, PFC, APPLICATIONS = 21, 1, 13, 2, 3
DSCP = 5
"""Selector of an application entry whose protocol is a DSCP."""
HEADER = struct.Struct("=IHHII")
MESSAGE = struct.Struct("=BBH")
ATTRIBUTE = struct.Struct("=HH")
SECONDS = 0.5

Statistics = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Bridging:
    """What an interface's driver told."""

    lossless: tuple[int, ...]
    dscp: Mapping[int, int] = field(default_factory=dict)


def read(
    files: Files,
    addresses: Mapping[str, Sequence[str]],
    of_driver: Callable[[str], Statistics] = lambda name: {},
    bridging: Callable[[str], Bridging | None] = lambda name: None,
) -> tuple[NetDevice, ...]:
    """Return the interfaces; ``addresses`` by name, IPv4 before IPv6.

    ``of_driver`` returns what ``ethtool -S`` prints, ``bridging`` what ``dcb`` prints; those with an RDMA
    device are asked.
    """
    # bonding_masters is a file beside them.
    names = [name for name in files.names(CLASS) if name != "bonding_masters"]
    if len(names) > MOST_DEVICES:
        ranked = sorted(names, key=lambda name: _rank(files, name, addresses))
        chosen = set(ranked[:MOST_DEVICES])
        files.note(CLASS, f"{len(names) - MOST_DEVICES} of {len(names)} interfaces not read", summary=True)
        names = [name for name in names if name in chosen]
    return tuple(_device(files, name, addresses.get(name, ()), of_driver, bridging) for name in names)


def _rank(files: Files, name: str, addresses: Mapping[str, Sequence[str]]) -> int:
    return 0 if addresses.get(name) else 2 if files.exists(f"{CLASS}/{name}/device/physfn") else 1


def _device(
    files: Files,
    name: str,
    addresses: Sequence[str],
    of_driver: Callable[[str], Statistics],
    bridging: Callable[[str], Bridging | None],
) -> NetDevice:
    place = f"{CLASS}/{name}"
    device_path = files.device_path(place)
    state = files.text(f"{place}/operstate")
    speed = files.number(f"{place}/speed", if_applicable=True)
    known = speed is not None and 0 < speed < UNKNOWN_SPEED
    has_rdma = files.exists(f"{place}/device/infiniband")
    bridged = bridging(name) if has_rdma else None
    return NetDevice(
        name=name,
        up=state == "up"
        or (state == "unknown" and files.number(f"{place}/carrier", if_applicable=True) == 1),
        mtu=files.number(f"{place}/mtu"),
        speed=speed * 1e6 if known and speed is not None else None,
        driver=files.link_name(f"{place}/device/driver"),
        pci_address=pci_address(device_path),
        kind=KINDS.get(files.number(f"{place}/type") or 0, "other"),
        is_virtual=device_path.startswith("virtual/"),
        addresses=tuple(addresses),
        statistics=_statistics(files, place)
        | (
            {}
            if not has_rdma
            else {one: value for one, value in of_driver(name).items() if OF_DRIVER.fullmatch(one)}
        ),
        pfc=bridged.lossless if bridged else None,
        dscp=bridged.dscp if bridged else {},
        ecn=_ecn(files, f"{place}/ecn"),
    )


def _ecn(files: Files, place: str) -> tuple[int, ...] | None:
    """Return the priorities on which NVIDIA's driver marks (np) and obeys (rp) congestion."""
    parts = [f"{place}/{one}/enable" for one in ("roce_np", "roce_rp")]
    if not all(files.exists(one) for one in parts):
        return None
    return tuple(
        priority
        for priority in range(8)
        if all(files.number(f"{one}/{priority}", if_applicable=True) == 1 for one in parts)
    )


def _statistics(files: Files, place: str) -> dict[str, int]:
    every = {one: files.number(f"{place}/statistics/{one}") for one in files.names(f"{place}/statistics")}
    return {one: value for one, value in every.items() if value is not None}


# --- which priorities are lossless (PFC), and which DSCP goes in which ------------------------------------


def bridging_of(name: str) -> Bridging | None:
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
