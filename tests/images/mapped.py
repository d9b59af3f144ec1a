"""Which files a process has mapped, seen from outside: those of a tree, a host's own memory, or strangers.

A path in ``/proc/PID/maps`` says little: `/usr/lib/libmpi.so` may be the machine's file or the tree's. Which
file it is, device and inode tell, of the mapping itself (``/proc/PID/map_files``) and of the tree's file.
"""

from dataclasses import dataclass, field
from pathlib import Path

MEMORY = ("/dev/shm", "/tmp", "/var/tmp", "/run")
"""Where hosts keep what they share in memory."""
NAMELESS = ("/dev/zero (deleted)", "/memfd:", "/SYSV")
"""Shared memory without a file."""


@dataclass(kw_only=True)
class Mapped:
    """What one process has mapped."""

    pid: int
    command: str
    of_the_tree: set[str] = field(default_factory=set)
    own_memory: set[str] = field(default_factory=set)
    """Files in memory that the process' host shares between its processes; nothing in them is executable."""
    strangers: dict[str, str] = field(default_factory=dict)
    """Path → why it is neither."""


def mapped(pid: int, tree: Path) -> Mapped:
    """Look at a living process. Needs root."""
    process = Path("/proc", str(pid))
    root = process / "root"
    memory = {(root / place.lstrip("/")).stat().st_dev for place in MEMORY if (root / place[1:]).is_dir()}
    memory.discard((root / ".").stat().st_dev)
    found = Mapped(pid=pid, command=(process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
    for line in (process / "maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if len(words) < 6 or words[5].startswith("["):
            continue
        path, executable = words[5], "x" in words[1]
        start, end = (part.lstrip("0") or "0" for part in words[0].split("-"))
        try:
            status = (process / "map_files" / f"{start}-{end}").stat()
        except FileNotFoundError:
            continue  # unmapped since the list was read
        identity = (status.st_dev, status.st_ino)
        if identity in (
            _identity(tree / path.lstrip("/")),
            _identity(root / path.lstrip("/"), of=tree, at=path),
        ):
            found.of_the_tree.add(path)
        elif (status.st_dev in memory or path.startswith(NAMELESS)) and not executable:
            found.own_memory.add(path)
        else:
            found.strangers[path] = f"device and inode {identity}, {words[1]}"
    return found


def _identity(path: Path, *, of: Path | None = None, at: str = "") -> tuple[int, int] | None:
    """Device and inode; with ``of`` only where that tree has the same file: a host sees it in an overlay."""
    try:
        status = path.stat()
        if of is not None and (of / at.lstrip("/")).stat().st_ino != status.st_ino:
            return None
    except OSError:
        return None
    return status.st_dev, status.st_ino
