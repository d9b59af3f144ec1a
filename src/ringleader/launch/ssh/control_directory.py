"""The private directory of one job's ssh configuration and sockets, and what a killed job left of one."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from ringleader.errors import RefusedError

PREFIX = "rl-ssh-"
OWNER = "owner"
"""A file that says which process made the directory."""
SOCKET_NAME_LENGTH = 40 + 17
"""ssh's ``%C`` (40 characters) and the suffix (17) it adds while it makes the socket."""
SOCKET_PATH_LIMIT = 104
"""The shortest limit of a unix socket's path that OpenSSH's systems have (Linux: 108)."""


def sockets(directory: Path) -> tuple[Path, ...]:
    """Sockets of the shared connections that are open (or whose process died)."""
    try:
        return tuple(entry for entry in directory.iterdir() if entry.is_socket())
    except OSError:
        return ()


def bases() -> tuple[Path, ...]:
    """Directories in which one can be made, best first: short, without spaces, ours to write in."""
    wanted = (Path("/tmp"), Path(tempfile.gettempdir()), Path(f"/run/user/{os.getuid()}"), Path("/dev/shm"))
    return tuple(base for base in wanted if base.is_dir() and os.access(base, os.W_OK) and fits(base))


def fits(base: Path) -> bool:
    """Whether a socket in one under ``base`` has a path that the kernel and an MPI's arguments take."""
    longest = len(os.fsencode(base)) + len(f"/{PREFIX}12345678/") + SOCKET_NAME_LENGTH
    return longest < SOCKET_PATH_LIMIT and not any(char.isspace() for char in str(base))


def make_control_directory(base: Path | None = None) -> Path:
    """Make one that only its owner can enter. Raises RefusedError where there is no directory for one."""
    places = bases() if base is None else (base,) if fits(base) else ()
    if not places:
        raise RefusedError(
            "there is no directory for ssh's sockets: none of /tmp, $TMPDIR, /run/user and /dev/shm "
            "is writable and short enough",
            hint="make /tmp writable",
        )
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=places[0]))
    (directory / OWNER).write_text(_process(os.getpid()), encoding="ascii")
    return directory


def abandoned_control_directories(base: Path | None = None) -> tuple[Path, ...]:
    """Return those of ours whose process is gone (it was killed), for their connections to be ended."""
    left = []
    for place in bases() if base is None else (base,):
        for path in place.glob(f"{PREFIX}*"):
            try:
                status = path.lstat()
                owner = (path / OWNER).read_text(encoding="ascii").split()
            except (OSError, UnicodeDecodeError):
                continue  # just being made, or being removed, or not ours
            mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
            if mine and len(owner) == 3 and _gone(owner):
                left.append(path)
    return tuple(left)


def _gone(owner: list[str]) -> bool:
    """Whether the process in an owner file is dead; one of another PID namespace cannot be told: it lives."""
    if owner[2] != _pid_namespace():
        return False
    return _process(int(owner[0])) != " ".join(owner)


def _process(pid: int) -> str:
    """Process id, its start in clock ticks (an id may be used again), and our PID namespace."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
        started = fields[19]
    except (OSError, IndexError):
        started = "gone"
    return f"{pid} {started} {_pid_namespace()}"


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "unknown"
