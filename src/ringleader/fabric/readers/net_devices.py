"""Network interfaces of this network namespace, by /sys/class/net."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ringleader.fabric.facts import NetDevice
from ringleader.fabric.readers.sysfs_files import Files, pci_address

CLASS = "sys/class/net"
MOST_DEVICES = 512
"""Interfaces that are read; those with an address and those of whole devices come first."""
KINDS = {1: "ethernet", 32: "infiniband", 772: "loopback"}
"""ARPHRD numbers (linux/if_arp.h)."""
UNKNOWN_SPEED = 0xFFFFFFFF


def read(files: Files, addresses: Mapping[str, Sequence[str]]) -> tuple[NetDevice, ...]:
    """Return the interfaces; ``addresses`` by name, IPv4 before IPv6."""
    # bonding_masters is a file beside them.
    names = [name for name in files.names(CLASS) if name != "bonding_masters"]
    if len(names) > MOST_DEVICES:
        ranked = sorted(names, key=lambda name: _rank(files, name, addresses))
        chosen = set(ranked[:MOST_DEVICES])
        files.note(CLASS, f"{len(names) - MOST_DEVICES} of {len(names)} interfaces not read", summary=True)
        names = [name for name in names if name in chosen]
    return tuple(_device(files, name, addresses.get(name, ())) for name in names)


def _rank(files: Files, name: str, addresses: Mapping[str, Sequence[str]]) -> int:
    return 0 if addresses.get(name) else 2 if files.exists(f"{CLASS}/{name}/device/physfn") else 1


def _device(files: Files, name: str, addresses: Sequence[str]) -> NetDevice:
    place = f"{CLASS}/{name}"
    device_path = files.device_path(place)
    state = files.text(f"{place}/operstate")
    speed = files.number(f"{place}/speed", if_applicable=True)
    known = speed is not None and 0 < speed < UNKNOWN_SPEED
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
        statistics={
            one: value
            for one in files.names(f"{place}/statistics")
            if (value := files.number(f"{place}/statistics/{one}")) is not None
        },
    )
