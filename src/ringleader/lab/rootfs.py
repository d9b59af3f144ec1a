"""A directory tree that is the root file system of every host, instead of the machine's own. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.errors import Fault

OWN_PLACES = (
    "/",
    "/dev",
    "/dev/pts",
    "/dev/shm",
    "/etc",
    "/proc",
    "/run",
    "/sys",
    "/tmp",
    "/var",
    "/var/tmp",
)
"""What each host has for itself: nothing of the machine is mounted right there."""

_WORD = re.compile(r'"[^"]*"|[^\s"]+')
STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class Bind:
    """A file or directory of the machine that every host sees."""

    source: str
    """Absolute path on the machine."""
    target: str
    """Absolute path on the hosts."""
    read_only: bool = False

    def __str__(self) -> str:
        """Write it as ``--bind`` takes it."""
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


@dataclass(frozen=True, kw_only=True)
class Rootfs:
    """What ``lab up --root`` asks for."""

    path: str
    """Absolute path of the directory, for example of an unpacked image."""
    binds: tuple[Bind, ...] = ()

    def __str__(self) -> str:
        """Write it as a person would: the directory, and what is mounted in it."""
        return " with ".join([self.path, ", ".join(map(str, self.binds))][: 1 + bool(self.binds)])


@dataclass(frozen=True, kw_only=True)
class RootfsFacts:
    """What was found in a tree."""

    sshd: str = ""
    """Absolute path inside the tree; empty where it has none."""
    shell: str = "/bin/sh"
    """What ``lab shell`` opens."""
    environment: tuple[tuple[str, str], ...] = ()
    """What its sessions have: of its ``/etc/environment``, and of its sshd's own ``SetEnv``."""
    root_is_locked: bool = False
    """True where its sshd lets root in through PAM only."""

    @property
    def search_path(self) -> str:
        """PATH of its sessions."""
        return dict(self.environment).get("PATH", STANDARD_PATH)


def parse_bind(text: str) -> Bind:
    """Read ``SRC:DST`` or ``SRC:DST:ro``; ValueError where it is none."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not source or not target or mode not in ("", "ro", "rw"):
        raise ValueError(f"{text!r} is not SRC:DST or SRC:DST:ro")
    if not target.startswith("/") or "\n" in text:
        raise ValueError(f"{text!r}: DST is an absolute path on the hosts")
    normal = posixpath.normpath("/" + target.lstrip("/"))
    return Bind(source=source, target=normal, read_only=mode == "ro")


def bind_faults(binds: tuple[Bind, ...], *, lab_directory: str) -> list[Fault]:
    """Return a fault for each target that is a host's own or is named twice."""
    faults, seen = [], set()
    for bind in binds:
        if bind.target in OWN_PLACES or f"{lab_directory}/".startswith(f"{bind.target}/"):
            faults.append(_bind_fault(f"every host has its own {bind.target}", "mount it somewhere below"))
        elif f"{bind.target}/".startswith((f"{lab_directory}/", "/proc/", "/sys/")):
            faults.append(_bind_fault(f"{bind.target} is not a place for a mount", "for example DIR:/data"))
        elif bind.target in seen:
            faults.append(_bind_fault(f"{bind.target} is named twice", "each --bind has a place of its own"))
        seen.add(bind.target)
    return faults


def _bind_fault(what: str, hint: str) -> Fault:
    return Fault(where="--bind", what=what, hint=hint)


def read_environment(text: str) -> tuple[tuple[str, str], ...]:
    """Read ``/etc/environment`` as pam_env does: NAME=VALUE, perhaps with ``export`` or in quotes."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name.isidentifier():
            continue
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        if '"' not in value:
            found[name] = value
    return tuple(found.items())


def read_set_env(text: str) -> tuple[tuple[str, str], ...]:
    """Read what sshd's configuration gives to every session; the first ``SetEnv`` counts, as sshd has it."""
    for line in text.splitlines():
        keyword, *words = _WORD.findall(line) or [""]
        if keyword.lower() == "match":
            break
        if keyword.lower() == "setenv":
            pairs = [word.strip('"').partition("=") for word in words]
            return tuple((name, value) for name, equals, value in pairs if equals and '"' not in value)
    return ()


def rootfs_from_json(content: Mapping[str, Any] | None) -> Rootfs | None:
    """Return the tree of a lab's state file; KeyError and TypeError where it is none."""
    if content is None:
        return None
    return Rootfs(path=content["path"], binds=tuple(Bind(**bind) for bind in content["binds"]))
