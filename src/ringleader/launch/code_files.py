"""``run --sync``: which files of a directory are sent, and the copy of them here that a job is started from.

The copy is made before anything else, so that all hosts, restarts and hosts that join later get what the job
began with. ``agents/code_store`` keeps copies; ``host_probe/code_sync`` sends them to the hosts.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from ringleader.agents import code_store
from ringleader.errors import Fault, RefusedError, RequestError, refuse
from ringleader.fabric.byte_size import MIB, byte_size
from ringleader.number_format import plural
from ringleader.plan.job import Code, Job
from ringleader.value_class import dataclass

NEVER_SENT = frozenset((".git", ".hg", ".svn", "__pycache__"))
MOST_FILES = 100_000
"""Files that are looked at; a directory with more was not meant."""
MOST_FAULTS = 10
"""Files that are named."""
GIT_SECONDS = 60.0
_IGNORE = "add it to .gitignore, or remove it"
Manifest = Mapping[str, Any]
"""``files``: path, bytes, whether it is a program, SHA-256; ``links``: path, target; ``digest`` of both."""


@dataclass(frozen=True, kw_only=True)
class CodeFiles:
    """What is in a directory and not ignored."""

    sizes: Mapping[str, int]
    """Path from the directory → bytes; in order."""
    programs: frozenset[str]
    """Those that may be executed."""
    links: Mapping[str, str]
    """Path → target of each symbolic link."""


@contextlib.contextmanager
def frozen(
    job: Job, environ: Mapping[str, str], progress: Callable[[str], None], *, dry: bool = False
) -> Iterator[Job]:
    """Yield the job with its code as it is now, in a copy that stays while this lasts.

    A job without ``--sync``, or whose code is a copy already, stays as it is. ``dry``: no copy is made.
    Raises RequestError for files that cannot be sent, RefusedError where there is no room for a copy.
    """
    if not job.sync.wanted or job.code is not None:
        yield job
        return
    source, below = source_of(job)
    progress(f"reading the files of {source}")
    manifest = manifest_of(source, files_to_send(source, job.sync.limit))
    sizes = [size for _, size, _, _ in manifest["files"]]
    code = Code(source=source, digest=manifest["digest"], below=below, files=len(sizes), size=sum(sizes))
    if dry:
        yield replace(job, code=code)
        return
    tree = copied(source, manifest, job.sync.target, environ)
    held = os.open(tree.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield replace(job, code=replace(code, tree=str(tree)), workdir=os.path.normpath(tree / below))
    finally:
        os.close(held)


def sentence(job: Job) -> str:
    """Return what the user of a frozen job should know."""
    code = job.code
    assert code is not None
    what = f"{code.source} is sent to every host ({plural(code.files, 'file')}, {byte_size(code.size)})"
    return f"{what}; ranks run in {job.workdir}, and what they write to relative paths stays there"


def source_of(job: Job) -> tuple[str, str]:
    """Return the directory that is sent, and where below it the ranks run. Raises RequestError."""
    workdir = os.path.abspath(job.workdir or ".")  # noqa: PTH100
    source = os.path.abspath(job.sync.source or workdir)  # noqa: PTH100
    if not Path(source).is_dir():
        raise RequestError(f"there is no directory {source}", where="--sync-from")
    below = os.path.relpath(workdir, source)
    if below.partition("/")[0] == "..":
        what = f"the working directory {workdir} is not in {source}, which is sent"
        raise RequestError(
            what, where="--sync-from", hint="name a directory that has it: --sync-from, --workdir"
        )
    return source, below


# --- which files ------------------------------------------------------------------------------------------


def files_to_send(source: str, limit: int) -> CodeFiles:
    """Return the files of a directory. ``limit``: MiB. Raises RequestError with everything that is wrong."""
    sizes: dict[str, int] = {}
    links: dict[str, str] = {}
    programs, faults = set(), []
    for name in listed(source):
        path = f"{source}/{name}"
        try:
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                sizes[name] = status.st_size
                if status.st_mode & 0o111:
                    programs.add(name)
                wrong = "" if os.access(path, os.R_OK) else "cannot be read (permission denied)"
            elif stat.S_ISLNK(status.st_mode):
                links[name] = os.readlink(path)  # noqa: PTH115
                wrong = wrong_link(name, links[name])
            else:
                wrong = f"is {_kind(status.st_mode)}, not a file"
        except FileNotFoundError:
            continue  # git knows it, and it was deleted
        except OSError as error:
            wrong = f"cannot be read ({error.strerror})"
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
            wrong = "has a control character in its name"
        if wrong:
            faults.append(Fault(where=f"--sync {path!r}", what=wrong, hint=_IGNORE))
    if len(faults) > MOST_FAULTS:
        more = Fault(where="--sync", what=f"{len(faults) - MOST_FAULTS} more files cannot be sent")
        faults = [*faults[:MOST_FAULTS], more]
    if not faults and (too_much := beyond(sizes, limit, source)):
        faults.append(too_much)
    if not sizes and not faults:
        what = f"there is no file to send in {source}, or all are ignored"
        faults.append(Fault(where="--sync", what=what, hint=f"see: git -C {source} status --ignored"))
    refuse(faults)
    return CodeFiles(sizes=sizes, programs=frozenset(programs), links=links)


def listed(source: str) -> list[str]:
    """Return the paths in a directory that git does not ignore, or all where nobody says what to ignore."""
    found = _listed_by_git(source)
    if found is None:
        found = list(_walked(source))
        if ignores := [name for name in found if PurePosixPath(name).name == ".gitignore"]:
            if shutil.which("git") is None:
                what = f"{ignores[0]} can be read by git alone, which is not installed here"
                raise RequestError(what, where="--sync", hint="install git")
            with tempfile.TemporaryDirectory() as empty:  # git's rules, without a repository of the user's
                _git("init", "--quiet", "--bare", empty)
                found = _listed_by_git(source, f"--git-dir={empty}", f"--work-tree={source}") or []
    names: list[str] = []
    for name in dict.fromkeys(found):
        if name.endswith("/") or (Path(source, name).is_dir() and not Path(source, name).is_symlink()):
            names += (f"{name.rstrip('/')}/{below}" for below in listed(f"{source}/{name.rstrip('/')}"))
        elif NEVER_SENT.isdisjoint(name.split("/")):
            names.append(name)
    return sorted(names)


def _listed_by_git(source: str, *options: str) -> list[str] | None:
    """Return what git lists; a name that ends in a slash is another repository. ``None``: it is in none."""
    words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    try:
        done = _git("-C", source, *options, *words)
    except FileNotFoundError:
        return None
    if done.returncode == 0:
        return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]
    said = done.stderr.decode(errors="replace").strip()
    if "not a git repository" in said:
        return None
    raise RequestError(f"git cannot list the files of {source}: {said}", where="--sync")


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        return subprocess.run(("git", *words), env=environ, capture_output=True, timeout=GIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise RequestError(f"git {words[-1]} took more than {GIT_SECONDS:g} s", where="--sync") from None


def _walked(source: str) -> Iterator[str]:
    """Yield all paths, those at the top first; not many more than may be sent."""
    count = 0
    for directory, below, names in os.walk(source):
        below[:] = sorted(set(below) - NEVER_SENT)
        links = [name for name in below if Path(directory, name).is_symlink()]
        yield from (os.path.relpath(f"{directory}/{name}", source) for name in (*names, *links))
        count += len(names)
        if count > MOST_FILES:
            return


def wrong_link(name: str, target: str) -> str:
    """Return what is wrong with a symbolic link; empty: it leads to a place in the directory. Pure."""
    there = os.path.normpath(PurePosixPath(name).parent / target)
    if target.startswith("/") or there.partition("/")[0] == "..":
        return f"is a link to {target}, which is not sent with it"
    return ""


def _kind(mode: int) -> str:
    return "a socket" if stat.S_ISSOCK(mode) else "a FIFO" if stat.S_ISFIFO(mode) else "a device"


def beyond(sizes: Mapping[str, int], limit: int, source: str) -> Fault | None:
    """Return the fault of more files than ``limit`` MiB, with the directories that have most. Pure."""
    total = sum(sizes.values())
    if total <= limit * MIB and len(sizes) <= MOST_FILES:
        return None
    what = f"{source} has {plural(len(sizes), 'file')} of {byte_size(total)}, more than {limit} MiB"
    if total <= limit * MIB:
        what = f"{source} has {len(sizes):,} files, more than {MOST_FILES:,}"
    largest = "; ".join(f"{name} {byte_size(size)}" for name, size in largest_parts(sizes))
    more = -(-total // MIB)
    hint = f"list what is not code in .gitignore, or allow more: --sync-limit {more}"
    return Fault(where="--sync", what=f"{what}. Largest: {largest}", hint=hint)


def largest_parts(sizes: Mapping[str, int], most: int = 3) -> list[tuple[str, int]]:
    """Return the largest directories and files at the top, with their sizes; a directory of which one part
    makes nine tenths stands for that part. Pure."""
    parts: dict[str, int] = {}
    heaviest: dict[str, int] = {}
    for name, size in sizes.items():
        words = name.split("/")
        for depth in range(1, len(words) + 1):
            part = "/".join(words[:depth]) + ("/" if depth < len(words) else "")
            parts[part] = parts.get(part, 0) + size
            above = "/".join(words[: depth - 1]) + "/"
            heaviest[above] = max(heaviest.get(above, 0), parts[part])
    found: list[tuple[str, int]] = []
    for part, size in sorted(parts.items(), key=lambda item: (-item[1], item[0])):
        if 10 * heaviest.get(part, 0) < 9 * size and not any(part.startswith(one) for one, _ in found):
            found.append((part, size))
    return found[:most]


# --- the copy here ----------------------------------------------------------------------------------------


def manifest_of(source: str, files: CodeFiles) -> Manifest:
    """Read all files; return what a copy of them is checked by. Raises RequestError."""
    faults, rows = [], []
    for name in files.sizes:
        try:
            before = os.lstat(f"{source}/{name}")
            digest = code_store.checksum(Path(source, name))
            after = os.lstat(f"{source}/{name}")
        except OSError as error:
            faults.append(_unread(source, name, f"cannot be read ({error.strerror})"))
            continue
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            faults.append(_unread(source, name, "changed while it was read"))
        rows.append((name, after.st_size, name in files.programs, digest))
    refuse(faults)
    links = sorted(files.links.items())
    digest = hashlib.sha256(json.dumps([rows, links]).encode()).hexdigest()[:16]
    return {"digest": digest, "files": rows, "links": links}


def _unread(source: str, name: str, what: str) -> Fault:
    hint = "start again when it is complete"
    return Fault(where=f"--sync {f'{source}/{name}'!r}", what=what, hint=hint)


def copied(source: str, manifest: Manifest, target: str, environ: Mapping[str, str]) -> Path:
    """Return the tree of a copy on this machine, made where there is none. Raises RefusedError."""
    size = sum(size for _, size, _, _ in manifest["files"])
    order = {"do": "begin", "target": target, "digest": manifest["digest"], "bytes": size, "rsync": False}
    known = code_store.answer(order, environ)
    if "wrong" not in known and "tree" not in known:
        store = Path(known["store"])
        try:
            place = code_store.incoming(store)
            with code_store.removed_unless_renamed(place):
                _copy(source, place / code_store.TREE, manifest)
                known = {"tree": code_store.finish(store, place, dict(manifest))}
        except code_store.StoreError as error:
            known = {"wrong": str(error)}
        except OSError as error:
            known = {"wrong": f"{error.filename or store} cannot be written: {error.strerror}"}
    if "wrong" in known:
        raise RefusedError(known["wrong"], where="--sync on this machine", hint=MORE_ROOM)
    return Path(known["tree"])


MORE_ROOM = "make room there, or name another directory: --sync-to"


def _copy(source: str, tree: Path, manifest: Manifest) -> None:
    names: Iterable[Sequence[Any]] = (*manifest["files"], *manifest["links"])
    for directory in {PurePosixPath(row[0]).parent for row in names}:
        Path(tree, directory).mkdir(parents=True, exist_ok=True)
    for name, *_ in manifest["files"]:
        shutil.copyfile(f"{source}/{name}", tree / name)
    for name, target in manifest["links"]:
        Path(tree, name).symlink_to(target)
