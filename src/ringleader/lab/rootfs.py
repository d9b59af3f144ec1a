"""A directory tree that is the root file system of every host, instead of the machine's own.

What is asked for, what the tree offers, and everything that is wrong with it; ``host_files`` mounts it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ringleader.errors import Fault

OWN_PLACES = frozenset(
    ("/", "/dev", "/dev/pts", "/dev/shm", "/etc", "/proc", "/run", "/sys", "/tmp", "/var", "/var/tmp")
)
"""What each host has for itself: nothing of the machine is mounted right there."""
MOUNT_PLACES = ("dev", "etc", "etc/ssh", "proc", "run", "sys", "tmp", "var", "var/tmp")
"""A symbolic link here would lead the mounts out of the tree, into the machine's own."""
SSHD_PLACES = (
    *("/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd", "/usr/bin/sshd"),
    "/opt/openssh/sbin/sshd",
)
STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WORD = re.compile(r'"[^"]*"|[^\s"]+')


@dataclass(frozen=True, kw_only=True)
class Bind:
    """A file or directory of the machine that every host sees."""

    source: str
    """Absolute path on the machine."""
    target: str
    """Absolute path on the hosts."""
    read_only: bool = False

    def __str__(self) -> str:
        """Write it as ``--mount`` takes it."""
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


def rootfs_from_json(content: Mapping[str, Any] | None) -> Rootfs | None:
    """Return the tree of a lab's state file; KeyError and TypeError where it is none."""
    if content is None:
        return None
    return Rootfs(path=content["path"], binds=tuple(Bind(**bind) for bind in content["binds"]))


def rootfs_of_options(
    root: str | None, binds: tuple[str, ...], *, lab_directory: str
) -> tuple[Rootfs | None, list[Fault]]:
    """Return the tree that ``--root`` and ``--mount`` mean, with every fault of theirs."""
    if root is None:
        hint = "without --root the hosts see all of the machine's files"
        return None, [Fault(where="--mount", what="it goes with --root", hint=hint)] if binds else []
    read: list[Bind] = []
    faults: list[Fault] = []
    for text in binds:
        try:
            bind = parse_bind(text)
            read.append(replace(bind, source=str(Path(bind.source).resolve())))
        except ValueError as error:
            faults.append(Fault(where="--mount", what=str(error), hint="for example --mount ~/code:/code:ro"))
    tree = Rootfs(path=str(Path(root).resolve()), binds=tuple(read))
    found = (*_bind_faults(tree.binds, lab_directory), *_tree_faults(tree))
    return tree, [*faults, *(Fault(where=where, what=what, hint=hint) for where, what, hint in found)]


Found = Iterator[tuple[str, str, str]]
"""Faults: option, what is wrong, what to do."""


def _bind_faults(binds: tuple[Bind, ...], lab_directory: str) -> Found:
    seen = set()
    for bind in binds:
        target = bind.target
        if target in OWN_PLACES or f"{lab_directory}/".startswith(f"{target}/"):
            yield "--mount", f"every host has its own {target}", "mount it somewhere below"
        elif f"{target}/".startswith((f"{lab_directory}/", "/proc/", "/sys/")):
            yield "--mount", f"{target} is not a place for a mount", "for example DIR:/data"
        elif target in seen:
            yield "--mount", f"{target} is named twice", "each --mount has its own place"
        seen.add(target)
    for bind in binds:
        if not Path(bind.source).exists():
            yield "--mount", f"{bind.source}: no such file or directory", ""


def _tree_faults(tree: Rootfs) -> Found:
    top = Path(tree.path)
    if not top.is_dir():
        what = f"{tree.path} is not a directory" if top.exists() else f"{tree.path}: no such directory"
        yield "--root", what, "an image's tree, unpacked"
        return
    if top == Path("/"):
        yield "--root", "/ is the machine's own", "leave --root out"
        return
    if not rootfs_facts(tree).sshd:
        hint = "install openssh-server in the image; looked for " + ", ".join(SSHD_PLACES)
        yield "--root", f"{tree.path} has no sshd", hint
    if not _is_program(top, "/bin/sh"):
        yield "--root", f"{tree.path} has no /bin/sh", ""
    links = [place for place in MOUNT_PLACES if (top / place).is_symlink()]
    if links:
        what = f"in {tree.path} these are symbolic links: {', '.join(links)}"
        yield "--root", what, "hosts mount their own there: make them directories"
    for bind in tree.binds:
        path = top
        for part in Path(bind.target).parts[1:]:
            path /= part
            if path.is_symlink():
                what = f"{bind.target}: /{path.relative_to(top)} is a symbolic link in {tree.path}"
                yield "--mount", what, "choose a target without one"
                break


def rootfs_facts(tree: Rootfs) -> RootfsFacts:
    """Return what is in the tree; a file that can't be read counts as absent."""
    top = Path(tree.path)
    return RootfsFacts(
        sshd=next((place for place in SSHD_PLACES if _is_program(top, place)), ""),
        shell="/bin/bash" if _is_program(top, "/bin/bash") else "/bin/sh",
        environment=(
            *read_environment(_text(top / "etc/environment")),
            *read_set_env(_text(top / "etc/ssh/sshd_config")),
        ),
        root_is_locked=root_is_locked(_text(top / "etc/shadow")),
    )


def root_is_locked(shadow: str) -> bool:
    """Tell whether the text of an ``/etc/shadow`` locks root's account."""
    return any(line.startswith("root:!") for line in shadow.splitlines())


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


def _is_program(top: Path, place: str) -> bool:
    """True for a file or for a link: where a link leads is known inside the tree only."""
    path = top.joinpath(place.lstrip("/"))
    try:
        return path.is_symlink() or (path.is_file() and bool(path.stat().st_mode & 0o111))
    except OSError:
        return False


def _text(path: Path) -> str:
    """Read a file of the tree; a link is not followed: it could lead to a file of the machine."""
    try:
        return "" if path.is_symlink() else path.read_text(errors="replace")
    except OSError:
        return ""
