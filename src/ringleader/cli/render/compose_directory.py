"""An application's directory on disk: written whole or not at all, private keys readable for one user."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.render.compose.application_files import File
from ringleader.render.compose.request import User

LIST = ".ringleader-files"
"""Names what we wrote: only a directory that holds nothing else is ever replaced."""


def check(directory: Path, *, replace: bool) -> None:
    """Raise RequestError where something is there that must not be written over."""
    if not directory.exists() and not directory.is_symlink():
        if not directory.absolute().parent.is_dir():
            what = f"there is no directory {directory.absolute().parent}"
            raise RequestError(Fault(where="-o", what=what, hint="make it, or name another"))
        return
    if not directory.is_dir() or directory.is_symlink():
        raise RequestError(Fault(where="-o", what=f"{directory} is not a directory"))
    there = set(_below(directory))
    ours = _listed(directory)
    if not there:
        return
    foreign = sorted(there - ours - {LIST})
    if foreign or not ours:
        some = ", ".join(foreign[:5]) + (", …" if len(foreign) > 5 else "")
        hint = "name another directory, or move them away"
        raise RequestError(Fault(where="-o", what=f"{directory} holds other files: {some}", hint=hint))
    if not replace:
        what = f"{directory} holds an application already, with keys that its containers may be using"
        hint = "--replace draws new keys and writes all of it again; or name another directory"
        raise RequestError(Fault(where="-o", what=what, hint=hint))


def check_owner(user: User) -> None:
    """Raise RequestError where the containers' user could not read the private keys that we write."""
    ours = os.geteuid()
    if user.is_root or ours in (0, user.uid):
        return
    what = f"private keys of user {ours} cannot be read by user {user.uid} in the containers"
    hint = f"write them as root or as user {user.uid}, or choose --user {ours}"
    raise RequestError(Fault(where="--user and -o", what=what, hint=hint))


def write(directory: Path, files: Sequence[File], user: User) -> None:
    """Write an application in one step: beside the directory first, then put in its place.

    ``check`` and ``check_owner`` have passed. RefusedError where the system does not let us.
    """
    place = directory.absolute()
    try:
        made = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
        try:
            _fill(made, files, user)
            _put(made, place)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise RefusedError(Fault(where=str(error.filename or directory), what=what)) from None


def _fill(made: Path, files: Sequence[File], user: User) -> None:
    for file in files:
        path = made / file.path
        for folder in reversed(path.relative_to(made).parents):
            (made / folder).mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as out:
            os.fchmod(descriptor, file.mode)
            out.write(file.text)
        if file.container and os.geteuid() == 0:
            for owned in (path, path.parent):
                os.chown(owned, user.uid, -1 if user.gid is None else user.gid)
    (made / LIST).write_text(json.dumps([file.path for file in files]) + "\n", encoding="utf-8")


def _put(made: Path, place: Path) -> None:
    """Rename to the place; what was there is gone only when the new one stands."""
    if not place.exists():
        made.rename(place)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{place.name}.old.", dir=place.parent))
    place.rename(old)
    try:
        made.rename(place)
    except OSError:
        old.rename(place)
        raise
    shutil.rmtree(old)


def _below(directory: Path) -> Iterator[str]:
    """Return every file below a directory; an empty directory counts as one."""
    for path in directory.rglob("*"):
        if not path.is_dir() or path.is_symlink() or not any(path.iterdir()):
            yield str(path.relative_to(directory))


def _listed(directory: Path) -> set[str]:
    try:
        found = json.loads((directory / LIST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    return {str(one) for one in found} if isinstance(found, list) else set()
