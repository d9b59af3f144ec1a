"""Small files of the kernel, and the RDMA ports that they describe: the one reader of everything on a host.

``traffic_counters`` and ``hardware`` read with it, ``fabric.readers`` builds on it. Standard library only,
and nothing that costs a rank's agent a millisecond to import; any Python from 3.8 on has to read this file:
it is part of the program that runs on each host (``host_facts_script.py``).
"""

from __future__ import annotations

import errno
import os
import stat

from ringleader.agents.light_imports import Any, Iterator

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
"""Without O_NONBLOCK a FIFO would wait for somebody who writes to it."""
LONGEST = 1 << 20
"""Bytes of a file that are read at most."""
PAGE = 2048
"""A file of /proc that gave this much may have more; those of /sys give all at once."""
LINK_LAYERS = ("InfiniBand", "Ethernet")
ETHERNET, INFINIBAND, LOOPBACK = 1, 32, 772
KINDS = {ETHERNET: "ethernet", INFINIBAND: "infiniband", LOOPBACK: "loopback"}
"""ARPHRD numbers of ``/sys/class/net/*/type`` (linux/if_arp.h)."""


def read(path: str | os.PathLike[str], limit: int = LONGEST) -> bytes:
    """Return what a regular file holds, at most ``limit`` bytes. Raises OSError, and ValueError for a NUL."""
    descriptor = os.open(path, FLAGS)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EPERM, "not a regular file")
        blocks = [os.read(descriptor, limit)]
        size = len(blocks[0])
        while len(blocks[-1]) >= PAGE and size < limit:
            blocks.append(os.read(descriptor, limit - size))
            size += len(blocks[-1])
        return b"".join(blocks)
    finally:
        os.close(descriptor)


def stripped(data: bytes) -> str:
    """Return a file's content as text without the space around it."""
    return data.decode("utf-8", "replace").strip(" \t\r\n\0")


def text(path: str | os.PathLike[str]) -> str:
    """Return a file's text without the space around it; empty where it cannot be read."""
    try:
        return stripped(read(path))
    except (OSError, ValueError):
        return ""


def names(path: str) -> list[str]:
    """Return what is in a directory, sorted; nothing where it cannot be read."""
    try:
        return sorted(os.listdir(path))  # noqa: PTH208
    except OSError:
        return []


def link_name(path: str) -> str:
    """Return the last part of what a symbolic link points at; empty where there is none."""
    try:
        return os.readlink(path).rpartition("/")[2]  # noqa: PTH115
    except OSError:
        return ""


def number_before(colon: str) -> int | None:
    """Return the number of ``4: ACTIVE``; ``None``: it has none."""
    word = colon.partition(":")[0]
    return int(word) if word.isdigit() else None


def word_behind(colon: str) -> str:
    """Return the word of ``4: ACTIVE``; empty: it has none."""
    return colon.partition(":")[2].strip()


def rdma_ports(root: str = "") -> Iterator[dict[str, Any]]:
    """Yield each port of each RDMA device below ``root``: where it is in sysfs, what it is, and its state."""
    base = f"{root}/sys/class/infiniband"
    for device in names(base):
        about = {
            "device": device,
            "node_type": number_before(text(f"{base}/{device}/node_type")),
            "driver": link_name(f"{base}/{device}/device/driver"),
        }
        for port in names(f"{base}/{device}/ports"):
            here = f"{base}/{device}/ports/{port}"
            yield {
                **about,
                "port": port,
                "path": here,
                "state": word_behind(text(f"{here}/state")),
                "link_layer": text(f"{here}/link_layer"),
            }
