"""RDMA devices, their ports, GIDs and counters, and the device files that programs open for them.

By the kernel's Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass

from ringleader.fabric.facts import DeviceFile, Gid, RdmaDevice, RdmaPort
from ringleader.fabric.readers.sysfs_files import Files, number, pci_address

CLASS = "sys/class/infiniband"
VERBS = "sys/class/infiniband_verbs"
DEVICE_FILES = "dev/infiniband"
MOST_DEVICES = 256
"""Devices that are read; a host with thousands of virtual functions would take many seconds."""
LINK_LAYERS = ("InfiniBand", "Ethernet")


@dataclass(frozen=True, kw_only=True)
class Rdma:
    """What this module reads."""

    devices: tuple[RdmaDevice, ...] = ()
    files: tuple[DeviceFile, ...] = ()
    verbs_devices: dict[str, str]
    netns_exclusive: bool | None = None


def read(files: Files) -> Rdma:
    """Return all of it. Of more than MOST_DEVICES devices those come first that have a device file here."""
    verbs = {
        name: device
        for name in files.names(VERBS)
        if name.startswith("uverbs") and (device := files.text(f"{VERBS}/{name}/ibdev"))
    }
    device_files = tuple(
        DeviceFile(
            path=f"/{DEVICE_FILES}/{name}",
            rdma_device=verbs.get(name, ""),
            error=_opening_error(files, f"{DEVICE_FILES}/{name}"),
        )
        for name in files.names(DEVICE_FILES)
        if name.startswith("uverbs") or name == "rdma_cm"
    )
    names = _chosen(files, usable={one.rdma_device for one in device_files})
    shared = files.text("sys/module/ib_core/parameters/netns_mode")
    return Rdma(
        devices=tuple(_device(files, name) for name in names),
        files=device_files,
        verbs_devices=verbs,
        netns_exclusive={"Y": False, "1": False, "N": True, "0": True}.get(shared),
    )


def _chosen(files: Files, usable: set[str]) -> tuple[str, ...]:
    names = files.names(CLASS)
    if len(names) <= MOST_DEVICES:
        return names
    first = [name for name in names if name in usable]
    rest = [name for name in names if name not in usable]
    rest.sort(key=lambda name: files.exists(f"{CLASS}/{name}/device/physfn"))
    chosen = {*first[:MOST_DEVICES], *rest[: max(0, MOST_DEVICES - len(first))]}
    files.note(CLASS, f"{len(names) - len(chosen)} of {len(names)} devices not read", summary=True)
    return tuple(name for name in names if name in chosen)


def _device(files: Files, name: str) -> RdmaDevice:
    place = f"{CLASS}/{name}"
    node_type, _, _ = files.text(f"{place}/node_type").partition(":")
    numbers = [one for one in files.names(f"{place}/ports") if one.isdecimal()]
    device_counters = _counters(files, f"{place}/hw_counters") if len(numbers) == 1 else {}
    return RdmaDevice(
        name=name,
        node_type=number(node_type),
        driver=files.link_name(f"{place}/device/driver"),
        hca_type=files.text(f"{place}/hca_type"),
        board_id=files.text(f"{place}/board_id"),
        firmware=files.text(f"{place}/fw_ver"),
        node_guid=files.text(f"{place}/node_guid"),
        pci_address=pci_address(files.device_path(place))
        or pci_address(files.device_path(f"{place}/device")),
        parent=files.text(f"{place}/parent"),
        netdevs=files.names(f"{place}/device/net"),
        # ``Global tclass=106`` of NVIDIA's driver.
        traffic_class=number(files.text(f"{place}/tc/1/traffic_class").rpartition("=")[2]),
        ports=tuple(_port(files, f"{place}/ports/{one}", int(one), device_counters) for one in numbers),
    )


def _port(files: Files, place: str, port: int, device_counters: dict[str, int]) -> RdmaPort:
    rate = files.text(f"{place}/rate", if_applicable=True)
    speed = re.match(r"(\d{1,6}(?:\.\d{1,3})?) Gb/sec", rate)
    link_layer = files.text(f"{place}/link_layer")
    pkeys = (files.number(f"{place}/pkeys/{one}") for one in files.names(f"{place}/pkeys"))
    return RdmaPort(
        number=port,
        state=_word(files.text(f"{place}/state")),
        physical_state=_word(files.text(f"{place}/phys_state")),
        rate=float(speed[1]) * 1e9 if speed else None,
        rate_text=rate,
        link_layer=link_layer if link_layer in LINK_LAYERS else "",
        lid=files.number(f"{place}/lid"),
        sm_lid=files.number(f"{place}/sm_lid"),
        pkeys=tuple(key for key in pkeys if key),
        gids=_gids(files, place),
        counters=device_counters
        | _counters(files, f"{place}/counters")
        | _counters(files, f"{place}/hw_counters"),
    )


def _word(text: str) -> str:
    """Return the word of ``4: ACTIVE``."""
    _, colon, word = text.partition(":")
    return word.strip() if colon else ""


def _gids(files: Files, place: str) -> tuple[Gid, ...]:
    found = []
    for index in files.names(f"{place}/gids"):
        address = files.text(f"{place}/gids/{index}", if_applicable=True)
        if not index.isdecimal() or not address.strip("0:") or address == "fe80" + ":0000" * 7:
            continue
        # The kernel answers EINVAL for an entry whose interface is in another network namespace.
        kind = files.text(f"{place}/gid_attrs/types/{index}", if_applicable=True)
        netdev = files.text(f"{place}/gid_attrs/ndevs/{index}", if_applicable=True)
        found.append(Gid(index=int(index), address=address, kind=kind, netdev=netdev))
    return tuple(found)


def _counters(files: Files, place: str) -> dict[str, int]:
    """Return counters by name; those that are not a number (``N/A (no PMA)``) are left out."""
    every = {name: files.number(f"{place}/{name}", if_applicable=True) for name in files.names(place)}
    # lifespan is how long the driver keeps the others, in ms.
    return {name: value for name, value in every.items() if value is not None and name != "lifespan"}


def _opening_error(files: Files, name: str) -> str:
    """Return why a device file cannot be opened for reading and writing; empty: it can."""
    path = files.path(name)
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
        # Opening something else could hang; below another root a plain file stands for a device.
        if not stat.S_ISCHR(mode) and not (files.replaced and stat.S_ISREG(mode)):
            return "not a character device"
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.strerror or errno.errorcode.get(error.errno or 0, str(error))
    return ""
