"""Files that a user names: read and written so that nothing hangs and nothing fills the memory.

What editors and terminals add to a text (a byte order mark, escape sequences) is removed.

A name may be a pipe (``<(…)`` of a shell, a FIFO), a terminal or a device. A pipe that nobody writes to is an
error after ``SILENCE_SECONDS``, a device without an end is one after ``LARGEST`` bytes.
"""

from __future__ import annotations

import errno
import os
import re
import select
import stat
from pathlib import Path
from typing import Any, BinaryIO

LARGEST = 64 << 20
"""Bytes; manifests, recipes, hostfiles and stored runs are far smaller."""
SILENCE_SECONDS = 15.0
MOST_DIGITS = 30
"""Digits of a number; the kernel's counters have at most 20. With more, arithmetic ends with an exception."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\^_=>])")
"""Sequences of ECMA-48 (CSI, OSC and those of two characters), as a recorded terminal has them."""

_PREFIX = re.compile(
    r"""\s*(?:
    (?:\[[^\]\n]{1,200}\])+(?:<[^>\n]{1,20}>)?:?\s?  # mpirun's [1,0]<stdout>:, kubectl's [pod/NAME/CONTAINER]
    |<std(?:out|err|diag)>:\s?  # mpirun's behind a time
    |[A-Z][a-z]{2}\ [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d\ \d{4}(?=[\[<])  # the time of Open MPI 4
    |\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)(?:\s|$)  # kubectl logs --timestamps
    |\s{0,8}\d{1,7}:(?:\ |$)  # srun -l
    |[A-Za-z0-9][\w.-]{0,99}\s{1,40}\|(?:\s|$)  # docker compose
    ){0,4}""",
    re.VERBOSE,
)
"""What launchers and readers of logs put before a line, in any order."""


def read_text(path: str | Path) -> str:
    """Return a file's text. Raises as ``read_bytes``, and UnicodeDecodeError where it is not UTF-8."""
    return decoded(read_bytes(path))


def decoded(data: bytes) -> str:
    """Return the text of UTF-8 without a byte order mark. Raises UnicodeDecodeError."""
    return data.decode("utf-8-sig")


def printed(text: str) -> str:
    """Return a text as a program printed it: without a byte order mark and a terminal's sequences."""
    return _ESCAPES.sub("", text).removeprefix("\ufeff")


def json_document(text: str) -> Any:
    """Return what a JSON text of somebody else's holds.

    JSONDecodeError, or another ValueError that says what is wrong: a number beyond any measurement, half a
    character (a lone surrogate), nesting beyond Python's limit.
    """
    import json  # few calls read one

    try:
        found = json.loads(printed(text), parse_int=whole_number, parse_float=finite_number)
        if "\\ud" in text.lower():
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except UnicodeEncodeError:
        raise ValueError("it has half a character (a lone surrogate)") from None
    return found


def whole_number(text: str) -> int:
    """Return a number that somebody else wrote. Raises ValueError for one that no counter has."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:MOST_DIGITS]}… is too large for any counter")
    return int(text)


def finite_number(text: str) -> float:
    """Return a number that somebody else wrote. Raises ValueError for one that nothing measures."""
    value = float(text)
    if not abs(value) < 10**MOST_DIGITS:
        raise ValueError(f"{text[:MOST_DIGITS]} is too large for any measurement")
    return value


def unprefixed(line: str) -> str:
    """Return a line of a program's output without what launchers and readers of logs put before it."""
    return _PREFIX.sub("", line, count=1)


def read_bytes(path: str | Path, *, silence: float = SILENCE_SECONDS, largest: int = LARGEST) -> bytes:
    """Return what is in a file, a pipe or a device.

    Raises OSError whose ``strerror`` says what is wrong: also where a pipe is silent for ``silence`` seconds
    and where there is more than ``largest`` bytes.
    """
    # Without O_NONBLOCK the opening of a FIFO waits for somebody who writes.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        waits = None if stat.S_ISREG(kind) or os.isatty(descriptor) else silence
        os.set_blocking(descriptor, True)
        return _read(descriptor, path, waits, largest)
    finally:
        os.close(descriptor)


def open_to_write(path: str | Path) -> BinaryIO:
    """Open a file to be written anew. Raises OSError, also for a pipe that nobody reads."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "nobody reads this pipe", str(path)) from None
        raise
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb")


def write_text(path: str | Path, text: str) -> None:
    """Write a text to a file. Raises OSError as ``open_to_write``."""
    with open_to_write(path) as file:
        file.write(text.encode("utf-8", errors="surrogateescape"))


def _read(descriptor: int, path: str | Path, silence: float | None, largest: int) -> bytes:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    found = bytearray()
    while True:
        if silence is not None and not poll.poll(silence * 1000):
            raise OSError(errno.ETIMEDOUT, f"nothing came from this pipe for {silence:.0f} s", str(path))
        part = os.read(descriptor, 1 << 20)
        if not part:
            return bytes(found)
        found += part
        if len(found) > largest:
            raise OSError(errno.EFBIG, f"is larger than {largest >> 20} MiB", str(path))
