"""Becomes a container: run in fresh namespaces, it lays out its own file system and starts the command.

``python container.py WORDS.json``. Standard library only. The machine's root stays as the image, read-only;
what containers write, and what belongs to users of the machine, is replaced.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from pathlib import Path

READ_ONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, RECURSIVE = 1, 2, 4, 8, 32, 4096, 16384
FRESH = {"/tmp": 0o1777, **dict.fromkeys(("/root", "/home", "/opt", "/run", "/dev"), 0o755)}
"""What each container has to itself, empty → mode."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
READY = "/run/ready"
"""Where a container says that it stands."""
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    words = [word.encode() for word in (source, target, kind)]
    if LIBC.mount(*words, ctypes.c_ulong(flags), data.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"mount {source} {target}")


def opened(path: str) -> str:
    """Hold a file that is about to be covered; return the path that still leads to it."""
    return f"/proc/self/fd/{os.open(path, os.O_PATH)}"


def place(target: str, *, is_directory: bool) -> None:
    """Make what something is to be mounted on, where the container may write; nowhere else."""
    if os.path.exists(target):
        return
    own = os.path.realpath(target)
    assert own.startswith(tuple(f"{one}/" for one in (*FRESH, "/etc"))), f"{own} would be the machine's"
    if is_directory:
        os.makedirs(own)
    else:
        os.makedirs(os.path.dirname(own), exist_ok=True)
        os.close(os.open(own, os.O_CREAT | os.O_WRONLY, 0o644))


def bind(held: str, target: str, *, is_read_only: bool) -> None:
    place(target, is_directory=os.path.isdir(held))
    mount(held, target, flags=BIND | RECURSIVE)
    if is_read_only:
        read_only(target)


def read_only(target: str) -> None:
    kept = os.statvfs(target).f_flag & (NOSUID | NODEV | NOEXEC)
    mount("none", target, flags=REMOUNT | BIND | READ_ONLY | kept)


def lay_out(words: dict) -> None:
    """Cover the machine's directories; mount devices, the image's own files and the Pod's volumes."""
    # First: /proc/self of an outer process namespace leads nowhere.
    mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC)
    mounts = [(opened(source), target, bool(ro)) for source, target, ro in words["mounts"]]
    kept = [(opened(path), path) for path in words["keep"]]
    devices = [(opened(f"/dev/{name}"), f"/dev/{name}") for name in DEVICES]
    for target, mode in FRESH.items():
        mount("tmpfs", target, "tmpfs", NOSUID, f"mode={mode:o}")
    for held, path in kept:
        if not os.path.exists(path):
            bind(held, path, is_read_only=True)
    for held, path in devices:
        bind(held, path, is_read_only=False)
    for name, kind, data in (("shm", "tmpfs", "mode=1777"), ("pts", "devpts", "newinstance,ptmxmode=0666")):
        os.mkdir(f"/dev/{name}")
        mount(kind, f"/dev/{name}", kind, NOSUID | NOEXEC, data)
    for name, leads in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdout", "/proc/self/fd/1")):
        os.symlink(leads, f"/dev/{name}")
    os.makedirs("/run/sshd")
    for held, target, is_read_only in mounts:
        bind(held, target, is_read_only=is_read_only)
    read_only("/")


def may_read(user: int, paths: list[str]) -> bool:
    """Say whether a user can run what is there: a checkout may be for its owner alone, unlike an image."""
    os.setegid(user)
    os.seteuid(user)
    try:
        return all(os.access(path, os.R_OK, effective_ids=True) for path in paths)
    finally:
        os.seteuid(0)
        os.setegid(0)


def become(words: dict) -> None:
    """Start the command in this process's place."""
    socket.sethostname(words["hostname"])
    lay_out(words)
    Path(READY).write_text("ready\n", encoding="ascii")
    os.chdir(words["directory"])
    if words["user"] and may_read(words["user"], words["needs"]):
        os.setgroups([])
        os.setgid(words["user"])
        os.setuid(words["user"])
    os.execvpe(words["command"][0], words["command"], words["environ"])


if __name__ == "__main__":
    try:
        become(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    except OSError as error:
        sys.exit(f"the container cannot start: {error}")
