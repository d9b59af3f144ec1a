"""The lab's block in ``/etc/hosts``: added and removed in place, so that a crash leaves a whole file.

The file may be a bind mount (containers), so it can't be replaced by renaming. Adding is one append. Removing
is one write of what stays, filled up with line ends to the old length, then a cut: a crash between the two
leaves blank lines at the end and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

ETC_HOSTS = Path("/etc/hosts")


def marks(name: str) -> tuple[str, str]:
    """Return how a lab's first line begins, and its last line."""
    return f"# ringleader lab {name}: begin", f"# ringleader lab {name}: end"


def block(name: str, text: str, *, line_end_added: bool = False) -> str:
    """Return the marked block that holds ``text``."""
    note = " (after a line end that was missing)" if line_end_added else ""
    begin, end = marks(name)
    return f"{begin}{note}\n{text}{end}\n"


def without_block(content: str, name: str) -> str:
    """Return the file without that lab's block, byte for byte as it was before the block was added."""
    begin, end = map(re.escape, marks(name))
    whole = re.compile(
        rf"(?:\n{begin} \(after a line end that was missing\)\n|^{begin}\n)(?:.*\n)*?{end}\n",
        re.MULTILINE,
    )
    return whole.sub("", content)


def has_block(name: str, path: Path = ETC_HOSTS) -> bool:
    """Tell whether the lab's block is there."""
    try:
        return marks(name)[0] in path.read_text()
    except FileNotFoundError:
        return False


def add_block(name: str, text: str, path: Path = ETC_HOSTS) -> None:
    """Append the lab's block."""
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        content = file.read()
        missing = bool(content) and not content.endswith(b"\n")
        added = ("\n" if missing else "") + block(name, text, line_end_added=missing)
        os.write(file.fileno(), added.encode())


def remove_block(name: str, path: Path = ETC_HOSTS) -> None:
    """Remove the lab's block where it is there."""
    if not has_block(name, path):
        return
    with path.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        content = file.read()
        stays = without_block(content.decode(), name).encode()
        if stays != content:
            os.pwrite(file.fileno(), stays + b"\n" * (len(content) - len(stays)), 0)
            os.ftruncate(file.fileno(), len(stays))
