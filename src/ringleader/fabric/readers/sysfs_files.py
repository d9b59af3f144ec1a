"""Small files of the system (``agents.sysfs``), read so that nothing raises: what failed is noted.

All names are below a root that stands for ``/`` and are written without a leading slash:
``sys/class/net/eth0/mtu``.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from ringleader.agents import sysfs
from ringleader.agents.sysfs import LONGEST
from ringleader.fabric.facts import Unreadable

LONGEST_NUMBER = 20
"""Characters of a number of 64 bits."""
MOST_NOTES = 100
"""Entries about what was not readable; those that follow are counted only."""
MOST_LINKS = 40
"""Symbolic links that the kernel follows for one name."""
NOT_THERE = (errno.ENOENT, errno.ENOTDIR)
NOT_APPLICABLE = (errno.EINVAL, errno.EISDIR, errno.EOPNOTSUPP)
"""What the kernel answers where a file has no meaning for a device: the speed of a link that is down."""
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

T = TypeVar("T")


class Files:
    """The files below one root, until a deadline; ``unreadable`` tells what could not be read."""

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        deadline: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``deadline``: from when on nothing is read any more, by ``clock``."""
        self._root = os.fspath(root).rstrip("/")
        self._deadline = deadline
        self._clock = clock
        self._notes: list[Unreadable] = []
        self._summaries: list[Unreadable] = []
        self._more = 0
        self._stopped = False
        self.reads = 0
        """Files and directories that were opened."""

    @property
    def replaced(self) -> bool:
        """Whether the root is another one than this machine's."""
        return bool(self._root)

    @property
    def root(self) -> Path:
        """The directory that stands for ``/``."""
        return Path(self._root or "/")

    @property
    def unreadable(self) -> tuple[Unreadable, ...]:
        """What was there and could not be read; what is said of many things comes first."""
        rest = (Unreadable(path="…", reason=f"{self._more} more"),) if self._more else ()
        return (*self._summaries, *self._notes, *rest)

    @property
    def architecture(self) -> str:
        """``x86_64``; empty: another root's kernel that does not tell (before 6.1)."""
        return self.text("proc/sys/kernel/arch") or ("" if self.replaced else os.uname().machine)

    def path(self, name: str) -> str:
        """Return the path that ``name`` has on this machine."""
        return f"{self._root}/{name.lstrip('/')}"

    def note(self, name: str, reason: str, *, summary: bool = False) -> None:
        """Remember that something was not read; ``summary``: it is said of many, and always kept."""
        shown = Unreadable(path=printable(f"/{name.lstrip('/')}"), reason=printable(reason))
        if summary:
            self._summaries.append(shown)
        elif len(self._notes) < MOST_NOTES:
            self._notes.append(shown)
        else:
            self._more += 1

    def data(self, name: str, *, limit: int = LONGEST, if_applicable: bool = False) -> bytes:
        """Return what a file holds, at most ``limit`` bytes; nothing where it is missing or not readable.

        ``if_applicable``: it is not a fault that the kernel has no value for it.
        """
        fine = NOT_APPLICABLE if if_applicable else ()
        return self._tried(name, lambda path: sysfs.read(path, limit), b"", fine)

    def text(self, name: str, *, limit: int = LONGEST, if_applicable: bool = False) -> str:
        """Return what a file holds, as text without the space around it; empty as ``data``."""
        return sysfs.stripped(self.data(name, limit=limit, if_applicable=if_applicable))

    def number(self, name: str, *, if_applicable: bool = False) -> int | None:
        """Return the number that a file holds, decimal or ``0x`` hexadecimal; ``None``: it has none."""
        return number(self.text(name, if_applicable=if_applicable))

    def names(self, name: str) -> tuple[str, ...]:
        """Return the entries of a directory, ``mlx5_2`` before ``mlx5_10``; none where there is none."""
        entries = self._tried(name, os.listdir, list[str]())
        return tuple(sorted((one for one in entries if printable(one) == one), key=_natural))

    def link(self, name: str) -> str:
        """Return the text of a symbolic link; empty where there is none."""
        return printable(self._tried(name, os.readlink, "", (errno.EINVAL,)))  # EINVAL: not a link

    def link_name(self, name: str) -> str:
        """Return the last part of what a symbolic link points to: the name of a driver, of an IOMMU group."""
        return self.link(name).rpartition("/")[2]

    def device_path(self, name: str) -> str:
        """Return where below /sys/devices an entry of /sys/class or /sys/bus is; empty: unknown."""
        found = self.link(name)
        if not found and self.exists(name):
            found = os.path.realpath(self.path(name))
        _, mark, rest = found.partition("devices/")
        return rest if mark else ""

    def exists(self, name: str) -> bool:
        """Whether there is something of that name."""
        return os.path.lexists(self.path(name)) if "\0" not in name else False

    def real(self, name: str) -> str:
        """Return where a name leads over all links, with a leading slash; none leads out of the root."""
        rest, done, links = [one for one in name.split("/") if one not in ("", ".")][::-1], "", 0
        while rest:
            part = rest.pop()
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            try:
                target = os.readlink(f"{self._root}{done}/{part}")  # noqa: PTH115
            except (OSError, ValueError):
                target = ""
            links += bool(target)
            if not target or links > MOST_LINKS:
                done = f"{done}/{part}"
                continue
            done = "" if target.startswith("/") else done
            rest += [one for one in target.split("/") if one not in ("", ".")][::-1]
        return printable(done) or "/"

    def is_directory(self, name: str) -> bool:
        """Whether there is a directory of that name, or a link to one."""
        return "\0" not in name and os.path.isdir(self.path(name))  # noqa: PTH112

    @property
    def is_cut_short(self) -> bool:
        """Whether the deadline came before all was read."""
        return self._stopped

    def _is_late(self, name: str) -> bool:
        self.reads += 1
        if self._clock() <= self._deadline:
            return False
        if not self._stopped:
            self._stopped = True
            self.note(name, "not read, and nothing after it: it took too long", summary=True)
        return True

    def _tried(self, name: str, read: Callable[[str], T], nothing: T, fine: Collection[int] = ()) -> T:
        """Return what ``read`` gives for a path, or ``nothing``; errors but ``fine`` ones are noted."""
        if self._is_late(name):
            return nothing
        try:
            return read(self.path(name))
        except OSError as error:
            if error.errno not in (*NOT_THERE, *fine):
                self.note(name, error.strerror or str(error))
        except ValueError as error:  # a NUL in the name
            self.note(name, str(error))
        return nothing


def printable(text: str) -> str:
    """Return a text without what is not UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))


def number(text: str) -> int | None:
    """Return the number that a text is, decimal or ``0x`` hexadecimal; ``None``: it is none."""
    if len(text) > LONGEST_NUMBER:
        return None
    try:
        return int(text, 16) if text.startswith("0x") else int(text)
    except ValueError:
        return None


def pci_address(device_path: str) -> str:
    """Return the PCI device of a path below /sys/devices, the one next to its end; empty: none."""
    parts = [part for part in device_path.split("/") if PCI_ADDRESS.fullmatch(part)]
    return parts[-1] if parts else ""
