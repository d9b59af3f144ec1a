"""Memory of this host, its huge pages and /dev/shm."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ringleader.fabric.facts import HugePages
from ringleader.fabric.readers.sysfs_files import Files

HUGE_PAGES = "sys/kernel/mm/hugepages"
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What this module reads; all in bytes."""

    total: int | None = None
    available: int | None = None
    huge_pages: tuple[HugePages, ...] = ()
    shm_size: int | None = None
    shm_free: int | None = None


def read(files: Files) -> Memory:
    """Return all of it."""
    info = dict(re.findall(r"^(\w+):\s+(\d{1,15}) kB$", files.text("proc/meminfo"), re.MULTILINE))
    size, free = _shared_memory(files)
    return Memory(
        total=_bytes(info.get("MemTotal")),
        available=_bytes(info.get("MemAvailable")),
        huge_pages=tuple(_huge_pages(files)),
        shm_size=size,
        shm_free=free,
    )


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
