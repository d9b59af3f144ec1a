"""The copies of users' code on one machine: found, received, verified, swept. Standard library, Python 3.8.

    ~/.cache/ringleader/code/<digest>/tree/            a copy, complete and as it was sent
                             <digest>/manifest.json    what was sent; its time is that of the last use
                             <digest>.2/               where somebody has changed files of the first one
                             incoming-<random>/        being filled, never used; removed by whoever fills it

``launch/code_files`` chooses the files; ``launch/host_probe/code_sync`` runs this file on the other hosts.
Every file of a copy has the time STAMP, so that a changed one shows.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:  # Python 3.8 has no dict[…] to evaluate
    from collections.abc import Iterator

    Document = dict[str, Any]

STAMP = 946684800
"""2000-01-01, the modification time of every file of a copy."""
KEPT = 10
"""Copies that stay however old they are, the last used ones."""
LEAST_AGE = 86400.0
"""Seconds for which a copy stays after its last use in any case: ranks of other machines may run in it. A
launcher renews the time of its copy while it runs (``code_files.kept``)."""
STALE = 86400.0
"""Seconds after which a directory that is still being filled was given up."""
TREE, MANIFEST, INCOMING = "tree", "manifest.json", "incoming-"


class StoreError(Exception):
    """Why code cannot be kept here."""


def answer(order: Document, environ: Any, data: IO[bytes] | None = None) -> Document:
    """Do what the launcher asks for: ``tree`` is the copy's path; ``wrong`` why there is none.

    Keys of ``order``: ``target`` (the store; empty: the usual one), ``digest``, ``bytes`` and ``do``:
    ``find`` (without any change), ``begin`` (find, or make room and name a directory for rsync), ``receive``
    (a tar archive from ``data``) or ``finish`` (verify what rsync has put into ``incoming``), the last two
    with the ``manifest``.
    """
    cache = environ.get("XDG_CACHE_HOME", "")
    usual = f"{cache if cache.startswith('/') else '~/.cache'}/ringleader/code"
    store = Path(os.path.realpath(Path(order["target"] or usual).expanduser()))  # as /proc names it
    known: Document = {"rsync": shutil.which("rsync") is not None}
    try:
        if order["do"] in ("find", "begin"):
            if store.exists() and (wrong := not_ours(store)):
                raise StoreError(f"{store} {wrong}")
            tree = find(store, order["digest"], notes_use=order["do"] == "begin")
            if tree is not None or order["do"] == "find":
                there = tree or store / order["digest"] / TREE
                return {**known, "tree": str(there), "found": tree is not None}
            begin(store, order["bytes"])
            if order["rsync"] and known["rsync"]:
                base = next((place / TREE for place in copies(store)), "")
                known.update(incoming=str(incoming(store)), base=str(base))
            return known
        receives = data is not None and order["do"] == "receive"
        place = incoming(store) if receives else Path(order["incoming"])
        try:
            if data is not None and receives:
                unpack(data, place / TREE)
            return {**known, "tree": str(finish(store, place, order["manifest"])), "found": False}
        finally:
            shutil.rmtree(place, ignore_errors=True)  # what is complete has another name by now
    except StoreError as error:
        return {**known, "wrong": str(error)}
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "no space is left" if full else error.strerror
        return {**known, "wrong": f"{error.filename or store} cannot be written: {why}"}


def begin(store: Path, size: int) -> None:
    """Make the store where it is missing, and sweep it. Raises StoreError, OSError where it has no room."""
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep(store)
    system = os.statvfs(store)
    if system.f_bavail * system.f_frsize < size:
        raise StoreError(f"{store} has no room: {system.f_bavail * system.f_frsize >> 20} MiB are free")


def not_ours(directory: Path) -> str:
    """Return why another user may have written what is in a directory; empty: nobody else can."""
    status = os.lstat(directory)
    if status.st_uid != os.geteuid():
        return "belongs to somebody else"
    return "can be written by others (chmod go-w)" if status.st_mode & 0o022 else ""


def incoming(store: Path) -> Path:
    """Make a directory for files that are about to come."""
    place = Path(tempfile.mkdtemp(prefix=INCOMING, dir=store))
    (place / TREE).mkdir()
    return place


def copies(store: Path, digest: str = "*") -> list[Path]:
    """Return the copies that there are, of one content or of all, the last used one first."""
    found = []
    for place in (*store.glob(digest), *store.glob(f"{digest}.*")):
        with contextlib.suppress(OSError):
            if not place.name.startswith(INCOMING):
                found.append(((place / MANIFEST).stat().st_mtime, place))
    return [place for _, place in sorted(set(found), reverse=True)]


def find(store: Path, digest: str, *, notes_use: bool = True) -> Path | None:
    """Return the tree of a copy of ours whose files are as they were sent, and note its use."""
    for place in copies(store, digest):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if notes_use:  # before it is verified: see `remove`
                renew(place)
            manifest = json.loads((place / MANIFEST).read_text("utf-8"))
            is_ours = not not_ours(place) and digest_of(manifest) == digest
            if is_ours and next(changed(place / TREE, manifest), None) is None:
                return place / TREE
    return None


def renew(place: Path) -> None:
    """Note that a copy is used now. Raises FileNotFoundError where it is being removed."""
    try:
        os.utime(place / MANIFEST)
    except FileNotFoundError:
        raise
    except OSError:  # a file system that cannot be written any more
        pass


def digest_of(manifest: Document) -> str:
    """Return what names the content that a manifest describes."""
    content = json.dumps([manifest["files"], manifest["links"]])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def changed(tree: Path, manifest: Document) -> Iterator[str]:
    """Yield the files of a tree that are missing or not as they were sent; contents are not read."""
    for name, size, _is_program, _digest in manifest["files"]:
        if not is_as_sent(tree / name, size):
            yield name
    for name, target in manifest["links"]:
        if not (tree / name).is_symlink() or os.readlink(tree / name) != target:  # noqa: PTH115
            yield name


def is_as_sent(path: Path, size: int) -> bool:
    """Say whether a file has the size and time with which a copy began."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_size == size and status.st_mtime == STAMP


def unpack(data: IO[bytes], tree: Path) -> None:
    """Write what a tar archive holds. Raises StoreError where its end is missing."""
    import tarfile

    try:
        with tarfile.open(fileobj=data, mode="r|gz") as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(str(tree))
    except (tarfile.TarError, EOFError) as error:
        raise StoreError(f"what was sent is not complete: {error}") from None


def checksum(path: Path) -> str:
    """SHA-256 of a file in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def finish(store: Path, place: Path, manifest: Document) -> Path:
    """Verify what has come, and make it a copy; return its tree. Raises StoreError for a wrong file."""
    tree = place / TREE
    for name, _size, is_program, digest in manifest["files"]:
        path = tree / name
        if not path.is_symlink() and path.is_file() and checksum(path) == digest:
            path.chmod(0o755 if is_program else 0o644)
            os.utime(path, (STAMP, STAMP))
    if wrong := next(changed(tree, manifest), None):
        raise StoreError(f"{wrong} did not arrive as it was read; it may have changed meanwhile")
    (place / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    for number in range(1, 100):
        name = manifest["digest"] if number == 1 else f"{manifest['digest']}.{number}"
        try:
            place.rename(store / name)
        except OSError as error:  # a copy that somebody has changed, or one that another job has just made
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            if found := find(store, manifest["digest"]):
                return found
        else:
            return store / name / TREE
    raise StoreError(f"{store} has a hundred changed copies of this code")


def sweep(store: Path) -> None:
    """Remove copies beyond the KEPT last used ones that nobody runs in, and what was given up half way."""
    now = time.time()
    for place in store.glob(f"{INCOMING}*"):
        with contextlib.suppress(OSError):
            if now - place.stat().st_mtime > STALE:
                shutil.rmtree(place, ignore_errors=True)
    old = copies(store)[KEPT:]
    in_use = set()
    for process in Path("/proc").glob("[0-9]*") if old else ():
        with contextlib.suppress(OSError):
            directory = Path(os.readlink(process / "cwd"))  # noqa: PTH115
            in_use |= {directory, *directory.parents}
    for place in old:
        with contextlib.suppress(OSError, ValueError):
            if now - (place / MANIFEST).stat().st_mtime > LEAST_AGE and place not in in_use:
                remove(place)


def remove(place: Path) -> None:
    """Remove a copy; what ranks have written there stays: only files that are as they were sent go.

    The manifest goes first. Whoever has noted a use before (`find`) keeps the copy; later there is none.
    """
    going = place / f"{MANIFEST}.old"
    (place / MANIFEST).rename(going)
    if time.time() - going.stat().st_mtime <= LEAST_AGE:
        going.rename(place / MANIFEST)
        return
    manifest = json.loads(going.read_text("utf-8"))
    for name, size, _is_program, _digest in (
        *manifest["files"],
        *((*link, 0, "") for link in manifest["links"]),
    ):
        path = place / TREE / name
        if path.is_symlink() or is_as_sent(path, size):
            path.unlink()
    going.unlink()
    for directory, _, _ in os.walk(place, topdown=False):
        if directory.endswith("/__pycache__"):
            shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            Path(directory).rmdir()
