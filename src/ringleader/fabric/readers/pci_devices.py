"""GPUs, NICs and the bridges above them, by /sys/bus/pci."""

from __future__ import annotations

import re
import struct

from ringleader.fabric.facts import PciDevice
from ringleader.fabric.readers.sysfs_files import PCI_ADDRESS, Files, number, pci_address

DEVICES = "sys/bus/pci/devices"
MOST_VIRTUAL_FUNCTIONS = 256
"""Virtual functions that are read; those that are used here come first."""
WANTED_CLASSES = (0x02, 0x03, 0x12)
"""Base classes: network controllers, displays (GPUs), processing accelerators."""
WANTED_SUBCLASSES = (0x0C06, 0x0680)
"""An older InfiniBand class, and other bridges: NVSwitch."""
BRIDGE = 0x0604
CONFIG_SPACE = 4096
EXTENDED = 0x100
"""Where the extended capabilities start (PCI Express Base Specification 7.6.3)."""
ACS = 0x000D
ACS_CONTROL = 6
ACS_REDIRECTS = 0b1100
"""P2P request redirect and P2P completion redirect."""
MEMORY_REGION = 0x200
"""IORESOURCE_MEM."""
MOST_CAPABILITIES = 64
STATUS, HAS_CAPABILITIES, CAPABILITIES, EXPRESS = 0x06, 0x10, 0x34, 0x10
"""Status register, its bit for a list of capabilities, where the list starts, PCI Express's number in it."""
RELAXED_ORDERING = 1 << 4
"""Bit of Device Control; bits 12 to 14 are the largest read request (PCI Express 7.5.3.4)."""
MOST_INTERRUPTS = 256


def read(files: Files) -> tuple[PciDevice, ...]:
    """Return the devices by address, bridges among them."""
    every = tuple(name for name in files.names(DEVICES) if PCI_ADDRESS.fullmatch(name))
    classes = {name: files.number(f"{DEVICES}/{name}/class") for name in every}
    paths = {name: _path(files, name) for name, code in classes.items() if _is_wanted(code)}
    paths = _limited(files, paths)
    above = {bridge for path in paths.values() for bridge in path[1:-1]}
    for bridge in above - paths.keys():
        paths[bridge] = _path(files, bridge)
    return tuple(_device(files, name, classes.get(name), paths[name]) for name in every if name in paths)


def _is_wanted(code: int | None) -> bool:
    return code is not None and (code >> 16 in WANTED_CLASSES or code >> 8 in WANTED_SUBCLASSES)


def _path(files: Files, name: str) -> tuple[str, ...]:
    """Return the root complex, the bridges and the device itself."""
    parts = files.device_path(f"{DEVICES}/{name}").split("/")
    known = tuple(one for one in parts if PCI_ADDRESS.fullmatch(one) or re.fullmatch(r"pci[0-9a-f:]+", one))
    return known if known and known[-1] == name else (name,)


def _limited(files: Files, paths: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    if len(paths) <= MOST_VIRTUAL_FUNCTIONS:
        return paths
    virtual = [name for name in paths if files.exists(f"{DEVICES}/{name}/physfn")]
    used = _used(files)
    virtual.sort(key=lambda name: name not in used)
    left_out = set(virtual[MOST_VIRTUAL_FUNCTIONS:])
    if left_out:
        files.note(DEVICES, f"{len(left_out)} of {len(virtual)} virtual functions not read", summary=True)
    return {name: path for name, path in paths.items() if name not in left_out}


def _used(files: Files) -> set[str]:
    """Return the addresses of devices whose interface or device file is given to this process."""
    places = [f"sys/class/net/{name}" for name in files.names("sys/class/net")]
    places += [f"sys/class/infiniband_verbs/{name}" for name in files.names("dev/infiniband")]
    return {pci_address(files.device_path(place)) for place in places}


def _device(files: Files, name: str, code: int | None, path: tuple[str, ...]) -> PciDevice:
    place = f"{DEVICES}/{name}"
    node = files.number(f"{place}/numa_node")
    is_nic = code is not None and code >> 16 == 0x02
    control = device_control(files.data(f"{place}/config", limit=256)) if is_nic else None
    return PciDevice(
        address=name,
        ancestors=path[:-1],
        vendor=files.number(f"{place}/vendor"),
        device=files.number(f"{place}/device"),
        device_class=code,
        driver=files.link_name(f"{place}/driver"),
        numa_node=node if node is not None and node >= 0 else None,
        link_speed=_speed(files, f"{place}/current_link_speed"),
        link_speed_max=_speed(files, f"{place}/max_link_speed"),
        link_width=_width(files, f"{place}/current_link_width"),
        link_width_max=_width(files, f"{place}/max_link_width"),
        is_virtual_function=files.exists(f"{place}/physfn"),
        iommu_group=number(files.link_name(f"{place}/iommu_group")),
        acs_redirects=acs_redirects(files.data(f"{place}/config", limit=CONFIG_SPACE))
        if code is not None and code >> 8 == BRIDGE
        else None,
        bar_sizes=bar_sizes(files.text(f"{place}/resource")),
        iommu_type=files.text(f"{place}/iommu_group/type"),
        relaxed_ordering=bool(control & RELAXED_ORDERING) if control is not None else None,
        max_read_request=128 << (control >> 12 & 7) if control is not None else None,
        irq_cpus=_interrupts(files, place) if files.exists(f"{place}/infiniband") else (),
    )


def _interrupts(files: Files, place: str) -> tuple[str, ...]:
    """Return the processors that take each interrupt of a device."""
    numbers = [one for one in files.names(f"{place}/msi_irqs") if one.isdecimal()]
    return tuple(
        cpus
        for one in numbers[:MOST_INTERRUPTS]
        if (cpus := files.text(f"proc/irq/{one}/effective_affinity_list", if_applicable=True))
    )


def device_control(config: bytes) -> int | None:
    """Return the Device Control register of the PCI Express capability; ``None``: not readable, or none.

    An ordinary user reads only the first 64 bytes, which have no capability.
    """
    at = config[CAPABILITIES] if len(config) > 64 and config[STATUS] & HAS_CAPABILITIES else 0
    for _ in range(MOST_CAPABILITIES):
        if at < 64 or at + 10 > len(config):
            return None
        if config[at] == EXPRESS:
            return int(struct.unpack_from("<H", config, at + 8)[0])
        at = config[at + 1]
    return None


def _speed(files: Files, name: str) -> float | None:
    """Return GT/s of ``32.0 GT/s PCIe``; ``None``: ``Unknown``."""
    found = re.match(r"(\d{1,4}(?:\.\d{1,3})?) GT/s", files.text(name, if_applicable=True))
    return float(found[1]) if found else None


def _width(files: Files, name: str) -> int | None:
    lanes = files.number(name, if_applicable=True)
    return lanes if lanes is not None and 0 < lanes <= 32 else None  # 0 and 255: not known


def acs_redirects(config: bytes) -> bool | None:
    """Return whether the ACS capability of a configuration space redirects peer-to-peer traffic to the root.

    ``None``: it has no such capability, or only the part that every user may read.
    """
    at = EXTENDED
    for _ in range(MOST_CAPABILITIES):
        if at < EXTENDED or at + 8 > len(config):
            return None
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == ACS:
            (control,) = struct.unpack_from("<H", config, at + ACS_CONTROL)
            return bool(control & ACS_REDIRECTS)
        at = header >> 20
    return None


def bar_sizes(resource: str) -> tuple[int, ...]:
    """Return the sizes of the memory regions among the six BARs of a ``resource`` file."""
    found = []
    for line in resource.splitlines()[:6]:
        start, end, flags = (*(number(word) for word in line.split()[:3]), None, None, None)[:3]
        if start is not None and end is not None and flags is not None and flags & MEMORY_REGION:
            found.append(end - start + 1)
    return tuple(size for size in found if size > 0)
