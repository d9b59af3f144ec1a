"""Sizes of messages as nccl-tests' options give them: ``-b 8 -e 128M -f 2``. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Self

from ringleader.errors import Fault
from ringleader.option_fields import WrongValueError

MOST_SIZES = 10_000
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class Size(int):
    """Bytes, shown as they were written: ``64K``."""

    _text: str

    def __new__(cls, text: str) -> Self:
        """Read ``8``, ``32M``, ``1.5G``, ``32MiB``: units are binary. Raises WrongValueError."""
        match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([kmgt]?)(?:i?b)?\s*", text.lower(), re.ASCII)
        if match is None:
            hint = "write bytes, or 64K, 8M, 1G; units are binary"
            raise WrongValueError(f"{text!r} is not a size", hint)
        found = super().__new__(cls, int(float(match[1]) * _UNITS[match[2]]))
        found._text = text
        return found

    def __str__(self) -> str:
        return self._text


def size_up_to(most: int, shown: str) -> Callable[[str], Size]:
    """Return what reads a size of an option; ``shown``: how its message calls the largest."""

    def read(text: str) -> Size:
        size = Size(text)
        if not 1 <= size <= most:
            what = f"{text} is {int(size)} bytes" if size > most else "a message has 1 byte at least"
            raise WrongValueError(what, f"use 1 to {shown}")
        return size

    return read


def message_sizes(
    low: Size, high: Size, *, factor: int, step: int = 0, options: Collection[str], faults: list[Fault]
) -> tuple[int, ...]:
    """Return the sizes from ``low`` to ``high``, each ``factor`` times the one before, or ``step`` more.

    What is wrong is added to ``faults``; then the answer is empty. ``options``: that say the two; where the
    word of one was wrong already, nothing is said of both.
    """
    if low > high:
        if not any(fault.where in options for fault in faults):
            what = f"the smallest size, {low}, is above the largest, {high}"
            faults.append(Fault(where=" and ".join(options), what=what, hint="exchange them"))
        return ()
    sizes = tuple(islice(sizes_between(int(low), int(high), factor=factor, step=step), MOST_SIZES + 1))
    if len(sizes) > MOST_SIZES:
        what, hint = f"more than {MOST_SIZES} sizes", "make the step larger"
        faults.append(Fault(where="--stepbytes", what=what, hint=hint))
        return ()
    return sizes


def sizes_between(minimum: int, maximum: int, *, factor: int, step: int) -> Iterator[int]:
    """Yield the sizes of a sweep: times ``factor`` where that is above 1, else ``step`` bytes more each."""
    size = minimum
    while size <= maximum:
        yield size
        following = size * factor if factor > 1 else size + step
        if following <= size:
            return
        size = following
