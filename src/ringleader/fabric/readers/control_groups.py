"""Limits of the control groups above this process, the tightest of each kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from ringleader.agents.usable_cores import cpu_limit
from ringleader.fabric.facts import UNLIMITED, ControlGroup, RdmaLimit
from ringleader.fabric.readers.sysfs_files import Files, number

MOUNT = "sys/fs/cgroup"
NO_LIMIT = 1 << 62
"""Version 1 writes a number near 2^63 where there is no limit."""


def read(files: Files) -> ControlGroup:
    """Return the limits, of version 2 or 1."""
    memberships = _memberships(files.text("proc/self/cgroup"))
    if not memberships:
        return ControlGroup(version=0)
    # Where both are mounted, the controllers are in version 1 and the unified tree is for names only.
    version = 2 if set(memberships) == {""} or files.exists(f"{MOUNT}/cgroup.controllers") else 1
    return ControlGroup(
        version=version,
        cpus=cpu_limit(files.root),
        memory=_least(files, memberships, version, "memory", ("memory.max", "memory.limit_in_bytes")),
        processes=_least(files, memberships, version, "pids", ("pids.max", "pids.max")),
        rdma=_rdma(files, memberships, version),
    )


def _memberships(text: str) -> dict[str, str]:
    """Return controller → path of /proc/self/cgroup; version 2 has the controller ``""``."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if path.startswith("/"):
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _groups(memberships: dict[str, str], version: int, controller: str) -> Iterator[str]:
    """Yield the directories of a controller, ours and all above it.

    In a container the path may be the host's, of which only the last, the root, is there.
    """
    base = MOUNT if version == 2 else f"{MOUNT}/{controller}"
    path = PurePosixPath(memberships.get("" if version == 2 else controller, "/"))
    for one in (path, *path.parents):
        if ".." not in one.parts:
            yield f"{base}{one}".rstrip("/")


def _least(
    files: Files, memberships: dict[str, str], version: int, controller: str, names: tuple[str, str]
) -> int | None:
    found = [
        files.number(f"{group}/{names[0 if version == 2 else 1]}", if_applicable=True)
        for group in _groups(memberships, version, controller)
        if files.exists(group)
    ]
    return min((one for one in found if one is not None and 0 <= one < NO_LIMIT), default=None)


def _rdma(files: Files, memberships: dict[str, str], version: int) -> tuple[RdmaLimit, ...]:
    """Return limits by device of lines as ``mlx5_0 hca_handle=2 hca_object=max``."""
    handles: dict[str, int] = {}
    objects: dict[str, int] = {}
    for group in _groups(memberships, version, "rdma"):
        for line in files.text(f"{group}/rdma.max", if_applicable=True).splitlines():
            found = re.fullmatch(r"(\S+) hca_handle=(\d{1,18}|max) hca_object=(\d{1,18}|max)", line.strip())
            if found:
                handles[found[1]] = _tighter(handles.get(found[1], UNLIMITED), found[2])
                objects[found[1]] = _tighter(objects.get(found[1], UNLIMITED), found[3])
    return tuple(
        RdmaLimit(device=name, handles=handles[name], objects=objects[name]) for name in sorted(handles)
    )


def _tighter(known: int, word: str) -> int:
    value = number(word)
    return known if value is None else value if known == UNLIMITED else min(known, value)
