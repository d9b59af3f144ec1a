"""Descriptors of this process: which are open, and closing those that a forked process must not have."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # see fast_stdlib.py
if TYPE_CHECKING:
    from collections.abc import Iterable


def open_descriptors() -> set[int]:
    """Return those that are open."""
    listed = {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208
    return {fd for fd in listed if _is_open(fd)}  # one was that of the listing


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def close_all_but(kept: Iterable[int]) -> None:
    """Close every descriptor but the standard ones and these."""
    start, spared = 3, sorted({fd for fd in kept if fd >= 3})
    for fd in spared:
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, max(start, *open_descriptors()) + 1)
