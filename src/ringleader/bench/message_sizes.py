"""Sizes of messages as nccl-tests' options give them: ``-b 8 -e 128M -f 2``. Pure."""

from __future__ import annotations

import re

from ringleader.errors import Fault

MOST_SIZES = 10_000
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_HINT = "write bytes, or 64K, 8M, 1G; units are binary"


def size_in_bytes(text: str) -> int | None:
    """Read ``8``, ``32M``, ``1.5G``, ``32MiB``: units are binary, as in nccl-tests. ``None``: it is none."""
    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([kmgt]?)(?:i?b)?\s*", text.lower(), re.ASCII)
    return int(float(match[1]) * _UNITS[match[2]]) if match else None


def message_sizes(
    lowest: str, highest: str, factor: str, *, most: int, faults: list[Fault]
) -> tuple[int, ...]:
    """Return the sizes from ``lowest`` to ``highest``, each ``factor`` times the one before.

    What is wrong is added to ``faults``; then the answer is empty. ``most``: bytes that one may have.
    """
    before = len(faults)
    low = _size("-b", lowest, most, faults)
    high = _size("-e", highest, most, faults)
    times = int(factor) if re.fullmatch(r"\d{1,9}", factor, re.ASCII) else 0
    if times < 2:
        hint = "write a whole number above 1"
        faults.append(Fault(where="-f", what=f"{factor!r} is not a factor between sizes", hint=hint))
    if low is not None and high is not None and low > high:
        what = f"the smallest size, {lowest}, is above the largest, {highest}"
        faults.append(Fault(where="-b and -e", what=what, hint="exchange them"))
    if len(faults) > before or low is None or high is None:
        return ()
    sizes = [low]
    while sizes[-1] * times <= high:
        sizes.append(sizes[-1] * times)
    return tuple(sizes)


def _size(option: str, text: str, most: int, faults: list[Fault]) -> int | None:
    size = size_in_bytes(text)
    if size is None:
        faults.append(Fault(where=option, what=f"{text!r} is not a size", hint=_HINT))
    elif not 1 <= size <= most:
        what = f"{text} is {size} bytes" if size > most else "a message has 1 byte at least"
        faults.append(Fault(where=option, what=what, hint=f"use 1 to {most >> 20}M"))
    return size
