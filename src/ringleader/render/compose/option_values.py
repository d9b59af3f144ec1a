"""Words of the command line that become values of a request. Pure: text in, values and faults out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePosixPath

from ringleader.errors import Fault
from ringleader.host_list import merge_hosts, parse_hostfile
from ringleader.job import Host
from ringleader.render.compose.request import FOLDER, SSH_CONFIG, Mount, User

_USER = re.compile(r"(\d{1,10})(?::(\d{1,10}))?", re.ASCII)
_LARGEST_ID = 2**32 - 2
_MOUNT_HINT = "write /data:/data, or /data:/data:ro where the containers only read it"
_OURS = (PurePosixPath(FOLDER), PurePosixPath(SSH_CONFIG))


def hosts(texts: Iterable[str], faults: list[Fault]) -> tuple[Host, ...]:
    """Read ``node1:8,node2:8``; a bare name leaves its slots open."""
    found: list[Host] = []
    for number, word in enumerate((word.strip() for text in texts for word in text.split(",")), start=1):
        where = f"--hosts {word[:80]}" if word and word.isprintable() else f"--hosts entry {number}"
        if not word or len(word.split()) != 1 or "#" in word:
            faults.append(Fault(where=where, what="is no host", hint="write node1:8,node2:8"))
            continue
        parsed = parse_hostfile(word, "--hosts")
        faults += (replace(fault, where=where) for fault in parsed.faults)
        found += parsed.hosts
    return merge_hosts(found)


def mounts(words: Iterable[str], faults: list[Fault]) -> tuple[Mount, ...]:
    """Read ``SOURCE:TARGET[:ro]``, each an absolute path."""
    found: list[Mount] = []
    for word in words:
        parts = word.split(":")
        read_only = len(parts) == 3 and parts[2] == "ro"
        if len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
            faults.append(_mount_fault(word, "is no mount"))
            continue
        what = _wrong_path(parts[0], "source") or _wrong_path(parts[1], "target") or _taken(parts[1], found)
        if what:
            faults.append(_mount_fault(word, what))
            continue
        found.append(Mount(source=_plain(parts[0]), target=_plain(parts[1]), read_only=read_only))
    return tuple(found)


def user(word: str, faults: list[Fault]) -> User:
    """Read ``root``, ``UID`` or ``UID:GID``: files are given to a number, which no name tells us."""
    if word == "root":
        return User()
    match = _USER.fullmatch(word)
    if match is None:
        hint = "write root, or numbers as in 1000:1000; id -u and id -g say yours"
        faults.append(Fault(where="--user", what=f"{word[:80]!r} is no user", hint=hint))
        return User()
    uid, gid = int(match[1]), None if match[2] is None else int(match[2])
    if max(uid, gid or 0) > _LARGEST_ID:
        faults.append(Fault(where="--user", what=f"{word} is beyond the largest number of a user"))
    return User(uid=uid, gid=gid)


def _mount_fault(word: str, what: str) -> Fault:
    where = f"--mount {word[:80]}" if word.isprintable() else f"--mount {word[:80]!r}"
    return Fault(where=where, what=what, hint=_MOUNT_HINT)


def _wrong_path(path: str, what: str) -> str:
    """Say what is wrong with a path; empty: nothing."""
    if not path.startswith("/"):
        return f"the {what} is no absolute path"
    if not path.isprintable():
        return f"the {what} holds a control character"
    if ".." in PurePosixPath(path).parts:
        return f"the {what} holds .."
    return ""


def _taken(target: str, before: Iterable[Mount]) -> str:
    """Say why nothing can be mounted at a target; empty: it can."""
    path = PurePosixPath(_plain(target))
    if path == PurePosixPath("/"):
        return "nothing can be mounted over the whole of a container"
    if any(ours.is_relative_to(path) or path.is_relative_to(ours) for ours in _OURS):
        return f"the target hides what stands in {FOLDER} or {SSH_CONFIG}"
    return "the target is taken by another mount" if str(path) in {one.target for one in before} else ""


def _plain(path: str) -> str:
    """Return a path without double or trailing slashes."""
    return "/" + str(PurePosixPath(path)).lstrip("/")
