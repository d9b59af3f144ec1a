"""Look into a tree before hosts are made of it: what it offers, and everything that is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ringleader.errors import Fault
from ringleader.lab.rootfs import (
    Bind,
    Rootfs,
    RootfsFacts,
    bind_faults,
    parse_bind,
    read_environment,
    read_set_env,
)

SSHD_PLACES = (
    "/usr/sbin/sshd",
    "/usr/local/sbin/sshd",
    "/sbin/sshd",
    "/usr/bin/sshd",
    "/opt/openssh/sbin/sshd",
)
MOUNT_PLACES = (
    "dev",
    "etc",
    "etc/ssh",
    "proc",
    "run",
    "sys",
    "tmp",
    "var",
    "var/tmp",
)
"""A symbolic link here would lead the mounts out of the tree, into the machine's own."""


def rootfs_of_options(
    root: str | None, binds: tuple[str, ...], *, lab_directory: str
) -> tuple[Rootfs | None, list[Fault]]:
    """Return the tree that ``--root`` and ``--bind`` mean, with every fault of theirs."""
    if root is None:
        hint = "without --root the hosts see all of the machine's files"
        return None, [Fault(where="--bind", what="it goes with --root", hint=hint)] if binds else []
    read: list[Bind] = []
    faults: list[Fault] = []
    for text in binds:
        try:
            bind = parse_bind(text)
            read.append(replace(bind, source=str(Path(bind.source).resolve())))
        except ValueError as error:
            faults.append(Fault(where="--bind", what=str(error), hint="for example --bind ~/code:/code:ro"))
    tree = Rootfs(path=str(Path(root).resolve()), binds=tuple(read))
    return tree, [*faults, *rootfs_faults(tree, lab_directory=lab_directory)]


def rootfs_facts(tree: Rootfs) -> RootfsFacts:
    """Return what is in the tree; a file that can't be read counts as absent."""
    top = Path(tree.path)
    sshd = next((place for place in SSHD_PLACES if _is_program(top, place)), "")
    shell = "/bin/bash" if _is_program(top, "/bin/bash") else "/bin/sh"
    shadow = _text(top / "etc/shadow").splitlines()
    return RootfsFacts(
        sshd=sshd,
        shell=shell,
        environment=(
            *read_environment(_text(top / "etc/environment")),
            *read_set_env(_text(top / "etc/ssh/sshd_config")),
        ),
        root_is_locked=any(line.startswith("root:!") for line in shadow),
    )


def rootfs_faults(tree: Rootfs, *, lab_directory: str) -> list[Fault]:
    """Return everything that keeps hosts from having this tree as their root."""
    faults = bind_faults(tree.binds, lab_directory=lab_directory)
    top = Path(tree.path)
    faults += [
        Fault(where="--bind", what=f"{bind.source}: no such file or directory")
        for bind in tree.binds
        if not Path(bind.source).exists()
    ]
    if not top.is_dir():
        what = f"{tree.path} is not a directory" if top.exists() else f"{tree.path}: no such directory"
        return [*faults, Fault(where="--root", what=what, hint="an image's tree, unpacked")]
    if top == Path("/"):
        return [*faults, Fault(where="--root", what="/ is the machine's own", hint="leave --root out")]
    if not rootfs_facts(tree).sshd:
        hint = "install openssh-server in the image; looked for " + ", ".join(SSHD_PLACES)
        faults.append(Fault(where="--root", what=f"{tree.path} has no sshd", hint=hint))
    if not _is_program(top, "/bin/sh"):
        faults.append(Fault(where="--root", what=f"{tree.path} has no /bin/sh"))
    links = [place for place in MOUNT_PLACES if (top / place).is_symlink()]
    if links:
        what = f"in {tree.path} these are symbolic links: {', '.join(links)}"
        faults.append(
            Fault(where="--root", what=what, hint="hosts mount their own there: make them directories")
        )
    for bind in tree.binds:
        if link := _link_on_the_way(top, bind.target):
            what = f"{bind.target}: {link} is a symbolic link in {tree.path}"
            faults.append(Fault(where="--bind", what=what, hint="choose a target without one"))
    return faults


def _is_program(top: Path, place: str) -> bool:
    """True for a file or for a link: where a link leads is known inside the tree only."""
    path = top.joinpath(place.lstrip("/"))
    try:
        return path.is_symlink() or (path.is_file() and bool(path.stat().st_mode & 0o111))
    except OSError:
        return False


def _link_on_the_way(top: Path, target: str) -> str:
    path = top
    for part in Path(target).parts[1:]:
        path /= part
        if path.is_symlink():
            return f"/{path.relative_to(top)}"
    return ""


def _text(path: Path) -> str:
    """Read a file of the tree; a link is not followed: it could lead to a file of the machine."""
    try:
        return "" if path.is_symlink() else path.read_text(errors="replace")
    except OSError:
        return ""
