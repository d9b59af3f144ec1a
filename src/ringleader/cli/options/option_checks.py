"""Faults of options besides single words, collected to be reported together; files that options name."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ringleader import text_files
from ringleader.errors import Fault, RequestError
from ringleader.option_fields import WrongValueError

ReadText = Callable[[str], str]
"""Takes a path, returns the file's text; raises OSError or UnicodeDecodeError."""


def read_input(path: str) -> str:
    """Return the text of a file, or for ``-`` of standard input. Raises OSError or UnicodeDecodeError."""
    if path != "-":
        return text_files.read_text(path)
    text = sys.stdin.read(text_files.LARGEST + 1)
    if len(text) > text_files.LARGEST:
        raise OSError(errno.EFBIG, f"is larger than {text_files.LARGEST >> 20} MiB", path)
    return text


@dataclass
class Faults:
    """Collects what is wrong while values are read."""

    found: list[Fault] = field(default_factory=list)

    def add(self, where: str, what: str, hint: str = "") -> None:
        """Note one fault."""
        self.found.append(Fault(where=where, what=what, hint=hint))

    def text_of(self, option: str, path: str, read: ReadText) -> str | None:
        """Read a file, or note why it cannot be read."""
        try:
            return read(path)
        except OSError as error:
            self.add(option, f"{path} cannot be read: {error.strerror or error}")
        except UnicodeDecodeError:
            self.add(option, f"{path} is not a text file (UTF-8)")
        return None


def read_ranks(text: str) -> frozenset[int]:
    """Read ``0,3`` or ``0-3,7``. Raises WrongValueError."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})(?:-(\d{1,7}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise WrongValueError(f"{part!r} names no ranks", "write 0,3 or 0-3")
        found.update(range(first, last + 1))
    return frozenset(found)


def unwritable(option: str, path: str | None) -> list[Fault]:
    """Return why a file cannot be written, as far as that can be seen before the work begins."""
    if path in (None, "-"):
        return []
    file = Path(path or "")
    if not path or file.is_dir():
        return [Fault(where=option, what=f"{path!r} is not a file")]
    if not file.parent.is_dir():
        return [Fault(where=option, what=f"there is no directory {file.parent}")]
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        return [Fault(where=option, what=f"{path} cannot be written")]
    return []


def write_text(path: str, text: str) -> None:
    """Write a text to a file, or for ``-`` to standard output."""
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        text_files.write_text(path, text)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise RequestError(what, where=path) from None
