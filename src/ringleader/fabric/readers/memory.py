"""Memory of this host, its huge pages and /dev/shm, and its NUMA nodes."""

from __future__ import annotations

import os
import re
from typing import Any

from ringleader.fabric.facts import HugePages, NumaNode
from ringleader.fabric.readers.sysfs_files import Files, number

HUGE_PAGES = "sys/kernel/mm/hugepages"
NODES = "sys/devices/system/node"
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def read(files: Files) -> dict[str, Any]:
    """Return memory, huge pages and /dev/shm, as fields of ``HostFacts``."""
    info = dict(re.findall(r"^(\w+):\s+(\d{1,15}) kB$", files.text("proc/meminfo"), re.MULTILINE))
    size, free = _shared_memory(files)
    return {
        "memory": _bytes(info.get("MemTotal")),
        "memory_available": _bytes(info.get("MemAvailable")),
        "huge_pages": tuple(_huge_pages(files)),
        "shm_size": size,
        "shm_free": free,
    }


def _bytes(kibibytes: str | None) -> int | None:
    return int(kibibytes) * 1024 if kibibytes else None


def _huge_pages(files: Files) -> list[HugePages]:
    found = []
    for name in files.names(HUGE_PAGES):
        size = re.fullmatch(r"hugepages-(\d{1,12})kB", name)
        total = files.number(f"{HUGE_PAGES}/{name}/nr_hugepages")
        free = files.number(f"{HUGE_PAGES}/{name}/free_hugepages")
        if size and total is not None and free is not None:
            found.append(HugePages(size=int(size[1]) * 1024, total=total, free=free))
    return found


def _shared_memory(files: Files) -> tuple[int | None, int | None]:
    """Return size and free bytes; below another root the size that it was mounted with, and nothing free."""
    if files.replaced:
        mounted = re.search(
            r"^\S+ /dev/shm tmpfs (?:\S*,)?size=(\d{1,15})([kmg]?)\b", files.text("proc/mounts"), re.MULTILINE
        )
        return (int(mounted[1]) * UNITS[mounted[2]], None) if mounted else (None, None)
    try:
        found = os.statvfs(files.path("dev/shm"))
    except OSError as error:
        if files.exists("dev/shm"):
            files.note("dev/shm", error.strerror or str(error))
        return None, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def read_nodes(files: Files) -> tuple[NumaNode, ...]:
    """Return the nodes by number; none on a kernel without NUMA."""
    numbers = (re.fullmatch(r"node(\d{1,5})", name) for name in files.names(NODES))
    return tuple(_node(files, int(one[1])) for one in numbers if one)


def _node(files: Files, node: int) -> NumaNode:
    place = f"{NODES}/node{node}"
    memory = re.search(r"MemTotal:\s+(\d{1,15}) kB", files.text(f"{place}/meminfo"))
    distances = [number(word) for word in files.text(f"{place}/distance").split()]
    return NumaNode(
        number=node,
        cpus=files.text(f"{place}/cpulist"),
        memory=int(memory[1]) * 1024 if memory else None,
        distances=tuple(one for one in distances if one is not None),
    )
