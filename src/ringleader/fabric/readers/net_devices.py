"""Network interfaces of this network namespace, by /sys/class/net."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from ringleader.fabric.facts import NetDevice
from ringleader.fabric.readers.data_center_bridging import Bridging
from ringleader.fabric.readers.sysfs_files import Files, pci_address

CLASS = "sys/class/net"
MOST_DEVICES = 512
"""Interfaces that are read; those with an address and those of whole devices come first."""
KINDS = {1: "ethernet", 32: "infiniband", 772: "loopback"}
"""ARPHRD numbers (linux/if_arp.h)."""
UNKNOWN_SPEED = 0xFFFFFFFF
OF_DRIVER = re.compile(
    r"[rt]x_(?:vport_rdma_(?:uni|multi)cast_(?:bytes|packets)|(?:discards|symbol_err|crc_errors)_phy"
    r"|(?:global|prio[0-7])_pause|prio[0-7]_discards|out_of_buffer)"
)
"""Statistics of drivers that matter to RDMA: bytes of verbs, pauses, discards."""

Statistics = Mapping[str, int]


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
