"""The copies of users' code on one machine: found, received, verified, swept. Standard library, Python 3.8.

    ~/.cache/ringleader/code/<digest>/tree/            a copy, complete and as it was sent
                             <digest>/manifest.json    what was sent; changed last when the copy was last used
                             <digest>.2/               where somebody has changed files of the first one
                             incoming-<random>/        being filled, never used; removed by whoever fills it

``launch/code_files`` chooses the files and makes the launcher's own copy; ``launch/host_probe/code_sync``
runs this file on the other hosts. Every file of a copy has the time STAMP, so that a changed one shows.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:  # Python 3.8 has no dict[…] to evaluate
    from collections.abc import Iterator

    Answer = dict[str, Any]
    Manifest = dict[str, Any]

STAMP = 946684800
"""2000-01-01, the modification time of every file of a copy."""
KEPT = 10
"""Copies that stay however old they are, the last used ones."""
LEAST_AGE = 600.0
"""Seconds for which a copy stays after its last use in any case: its ranks may be about to start."""
STALE = 86400.0
"""Seconds after which a directory that is still being filled was given up."""
BLOCK = 1 << 20
TREE, MANIFEST, INCOMING = "tree", "manifest.json", "incoming-"


class StoreError(Exception):
    """Why code cannot be kept here."""


def answer(order: Answer, environ: Any, data: BinaryIO | None = None) -> Answer:
    """Do what the launcher asks for: ``tree`` is the copy's path; ``wrong`` why there is none.

    Keys of ``order``: ``target`` (the store; empty: the usual one), ``digest``, ``bytes`` and ``do``:
    ``find`` (without any change), ``begin`` (find, or name a directory for rsync), ``receive`` (a tar archive
    from ``data``) or ``finish`` (verify what rsync has put into ``incoming``), the last two with the
    ``manifest``.
    """
    store = store_of(order["target"], environ)
    known: Answer = {"store": str(store), "rsync": shutil.which("rsync") is not None}
    try:
        if order["do"] in ("find", "begin"):
            found = find(store, order["digest"])
            if found is not None or order["do"] == "find":
                return {
                    **known,
                    "tree": str(found or store / order["digest"] / TREE),
                    "found": found is not None,
                }
            begin(store, order["bytes"])
            if not (order["rsync"] and known["rsync"]):
                return known
            return {**known, "incoming": str(incoming(store)), "base": str(newest(store) or "")}
        place = incoming(store) if order["do"] == "receive" else Path(order["incoming"])
        with removed_unless_renamed(place):
            if order["do"] == "receive" and data is not None:
                unpack(data, place / TREE)
            return {**known, "tree": str(finish(store, place, order["manifest"])), "found": False}
    except StoreError as error:
        return {**known, "wrong": str(error)}
    except OSError as error:
        where = error.filename or str(store)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return {
            **known,
            "wrong": f"{where} cannot be written: {'no space is left' if full else error.strerror}",
        }


def store_of(target: str, environ: Any) -> Path:
    """Return the directory of all copies of this user here."""
    cache = environ.get("XDG_CACHE_HOME", "")
    usual = os.path.join(cache if os.path.isabs(cache) else "~/.cache", "ringleader/code")  # noqa: PTH117, PTH118
    return Path(target or usual).expanduser()


def begin(store: Path, size: int) -> None:
    """Make the store where it is missing, and sweep it. Raises StoreError, OSError where it has no room."""
    for place in (*reversed(store.parents), store):
        if not place.is_dir():
            if os.path.lexists(place):
                raise StoreError(f"{place} is not a directory")
            place.mkdir(mode=0o700, exist_ok=True)
    if store.stat().st_uid != os.geteuid():
        raise StoreError(f"{store} belongs to somebody else")
    sweep(store)
    system = os.statvfs(store)
    if system.f_bavail * system.f_frsize < size:
        raise StoreError(f"{store} has no room: {system.f_bavail * system.f_frsize >> 20} MiB are free")


def incoming(store: Path) -> Path:
    """Make a directory for files that are about to come."""
    place = Path(tempfile.mkdtemp(prefix=INCOMING, dir=store))
    (place / TREE).mkdir()
    return place


@contextlib.contextmanager
def removed_unless_renamed(place: Path) -> Iterator[None]:
    """Leave nothing half made behind."""
    try:
        yield
    finally:
        shutil.rmtree(place, ignore_errors=True)


def copies(store: Path, digest: str = "") -> list[Path]:
    """Return the copies that there are, of one content or of all, the last used one first."""
    found = []
    for place in store.glob(f"{digest}*"):
        if not place.name.startswith(INCOMING) and (not digest or place.name.partition(".")[0] == digest):
            with contextlib.suppress(OSError):
                found.append(((place / MANIFEST).stat().st_mtime, place))
    return [place for _, place in sorted(found, reverse=True)]


@contextlib.contextmanager
def locked(place: Path, how: int) -> Iterator[bool]:
    """Hold the lock of a copy, which keeps it from being swept; False: somebody holds it otherwise."""
    held = os.open(place, os.O_RDONLY)
    try:
        try:
            fcntl.flock(held, how | fcntl.LOCK_NB)
        except OSError as error:  # some file systems have no locks
            yield error.errno != errno.EWOULDBLOCK
        else:
            yield True
    finally:
        os.close(held)


def find(store: Path, digest: str) -> Path | None:
    """Return the tree of a copy whose files are as they were sent, and note its use."""
    for place in copies(store, digest):
        with contextlib.suppress(OSError, ValueError, KeyError), locked(place, fcntl.LOCK_SH) as ours:
            manifest = json.loads((place / MANIFEST).read_text("utf-8"))
            if ours and not any(True for _ in changed(place / TREE, manifest)):
                with contextlib.suppress(OSError):  # a file system that cannot be written any more
                    os.utime(place / MANIFEST)
                return place / TREE
    return None


def newest(store: Path) -> Path | None:
    """Return the tree of the copy that was used last, of which most files may be alike."""
    return next((place / TREE for place in copies(store)), None)


def changed(tree: Path, manifest: Manifest) -> Iterator[str]:
    """Yield the files of a tree that are missing or not as they were sent; contents are not read."""
    for name, size, _is_program, _digest in manifest["files"]:
        if not as_sent(tree / name, size):
            yield name
    for name, target in manifest["links"]:
        if not os.path.islink(tree / name) or os.readlink(tree / name) != target:  # noqa: PTH114, PTH115
            yield name


def as_sent(path: Path, size: int) -> bool:
    """Say whether a file has the size and time with which a copy began."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_size == size and status.st_mtime == STAMP


def unpack(data: BinaryIO, tree: Path) -> None:
    """Write what a tar archive holds. Raises StoreError where its end is missing."""
    import tarfile

    safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    try:
        with tarfile.open(fileobj=data, mode="r|gz") as archive:
            archive.extractall(str(tree), **safe)
    except (tarfile.TarError, EOFError) as error:
        raise StoreError(f"what was sent is not complete: {error}") from None


def checksum(path: Path) -> str:
    """SHA-256 of a file in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def finish(store: Path, place: Path, manifest: Manifest) -> Path:
    """Verify what has come, and make it a copy; return its tree. Raises StoreError for a wrong file."""
    tree = place / TREE
    for name, _size, is_program, digest in manifest["files"]:
        path = tree / name
        if path.is_symlink() or not path.is_file() or checksum(path) != digest:
            raise StoreError(f"{name} did not arrive as it was sent; it may have changed meanwhile")
        path.chmod(0o755 if is_program else 0o644)
        os.utime(path, (STAMP, STAMP))
    if wrong := next(changed(tree, manifest), None):
        raise StoreError(f"{wrong} did not arrive as it was sent; it may have changed meanwhile")
    (place / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    for number in range(1, 100):
        name = manifest["digest"] if number == 1 else f"{manifest['digest']}.{number}"
        try:
            place.rename(store / name)
        except OSError as error:  # a copy that somebody has changed, or one that another job has just made
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            found = find(store, manifest["digest"])
            if found is not None:
                return found
        else:
            return store / name / TREE
    raise StoreError(f"{store} has a hundred changed copies of this code")


def sweep(store: Path) -> None:
    """Remove copies beyond the KEPT last used ones, and what was given up half way.

    What ranks have written into a copy stays: only files that were sent are removed, and only as sent.
    """
    now, busy = time.time(), ""
    for place in store.glob(f"{INCOMING}*"):
        with contextlib.suppress(OSError):
            if now - place.stat().st_mtime > STALE:
                shutil.rmtree(place, ignore_errors=True)
    for place in copies(store)[KEPT:]:
        with contextlib.suppress(OSError, ValueError, KeyError), locked(place, fcntl.LOCK_EX) as ours:
            busy = busy or "\n".join((*directories_in_use(), ""))
            if ours and now - (place / MANIFEST).stat().st_mtime > LEAST_AGE and f"{place}/" not in busy:
                remove(place)


def directories_in_use() -> Iterator[str]:
    """Yield the working directories of this user's processes."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield os.readlink(process / "cwd")  # noqa: PTH115


def remove(place: Path) -> None:
    """Remove what was sent of a copy, and the directories that are empty then."""
    tree = place / TREE
    manifest = json.loads((place / MANIFEST).read_text("utf-8"))
    for name, size, _is_program, _digest in manifest["files"]:
        if as_sent(tree / name, size):
            (tree / name).unlink()
    for name, _target in manifest["links"]:
        if (tree / name).is_symlink():
            (tree / name).unlink()
    for directory, _, _ in os.walk(tree, topdown=False):
        if directory.endswith("/__pycache__"):
            shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            Path(directory).rmdir()
    (place / MANIFEST).unlink()
    with contextlib.suppress(OSError):
        place.rmdir()
