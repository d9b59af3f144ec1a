"""``run --sync``: which files of a directory are sent, and the copy of them here that a job is started from.

The copy is made before anything else, so that all hosts, restarts and hosts that join later get what the job
began with. ``agents/code_store`` keeps copies; ``host_probe/code_sync`` sends them to the hosts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ringleader.agents import code_store
from ringleader.errors import Fault, RefusedError, RequestError, refuse
from ringleader.fabric.byte_size import MIB, byte_size
from ringleader.number_format import plural
from ringleader.plan.job import Code, Job

NEVER_SENT = frozenset((".git", ".hg", ".svn", "__pycache__"))
MOST_FILES = 100_000
"""A directory with more was not meant."""
MOST_FAULTS = 10
"""Files that are named."""
GIT_SECONDS = 60.0
RENEWED_EVERY = 300.0
"""Seconds after which a running job notes again that it uses its copy."""
MORE_ROOM = "make room there or name another directory (--sync-to), and start again"
Manifest = dict[str, Any]
"""``files``: path, bytes, whether it is a program, SHA-256; ``links``: path, target; ``digest`` of both."""


def frozen(
    job: Job, environ: Mapping[str, str], progress: Callable[[str], None], *, dry: bool = False
) -> Job:
    """Return the job with its code as it is now, its working directory in the copy; ``dry``: none is made.

    Raises RequestError for files that cannot be sent, RefusedError where there is no room for a copy.
    """
    source, below = source_of(job)
    progress(f"reading the files of {source}")
    manifest = manifest_of(source, contents(source, job.sync.limit))
    sizes = [size for _, size, _, _ in manifest["files"]]
    code = Code(
        source=source,
        digest=manifest["digest"],
        below=below,
        files=len(sizes),
        size=sum(sizes),
        python_path=tuple(_sent_of(dict(environ) | dict(job.env), source, manifest)),
    )
    if job.elastic is not None and job.elastic.hostfile is not None:  # read again where it is edited
        hostfile = os.path.normpath(f"{source}/{below}/{job.elastic.hostfile}")
        if not job.elastic.hostfile.startswith("/"):
            job = replace(job, elastic=replace(job.elastic, hostfile=hostfile))
    if not dry:
        tree = copied(code, manifest, job.sync.target, environ)
        job = replace(job, workdir=os.path.normpath(f"{tree}/{below}"))
        code = replace(code, tree=tree)
    return replace(job, code=code)


def _sent_of(environ: Mapping[str, str], source: str, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the entries of PYTHONPATH that are sent, each with its path from the source."""
    names = [row[0] for row in (*manifest["files"], *manifest["links"])]
    for entry in environ.get("PYTHONPATH", "").split(":"):
        below = os.path.relpath(os.path.realpath(entry), os.path.realpath(source))
        is_sent = below == "." or any(f"{name}/".startswith(f"{below}/") for name in names)
        if entry.startswith("/") and is_sent:
            yield entry, below


def sentence(job: Job) -> str:
    """Return what the user of a frozen job should know."""
    code = job.code
    assert code is not None
    what = f"{code.source} ({plural(code.files, 'file')}, {byte_size(code.size)})"
    where = f": {job.workdir}" if code.tree else ""
    return f"ranks run in a copy of {what}{where}; what they write to relative paths stays there"


@contextlib.contextmanager
def kept(job: Job) -> Iterator[None]:
    """While a frozen job runs, renew the time of the copy here, which hosts with the same home use, too."""
    assert job.code is not None
    place, ended = Path(job.code.tree).parent, threading.Event()

    def renew() -> None:
        while not ended.wait(RENEWED_EVERY):
            with contextlib.suppress(OSError):
                code_store.renew(place)

    threading.Thread(target=renew, name="keep-code", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def source_of(job: Job) -> tuple[str, str]:
    """Return the directory that is sent, and where below it the ranks run. Raises RequestError."""
    workdir = os.path.abspath(job.workdir or ".")  # noqa: PTH100
    source = os.path.abspath(job.sync.source or workdir)  # noqa: PTH100
    if not Path(source).is_dir():
        raise RequestError(f"there is no directory {source}", where="--sync-from")
    below = os.path.relpath(workdir, source)
    if below.partition("/")[0] == "..":
        what, hint = f"the working directory {workdir} is not in {source}", "name a directory that has it"
        raise RequestError(what, where="--sync-from", hint=hint)
    return source, below


# --- which files ------------------------------------------------------------------------------------------


def contents(source: str, limit: int) -> Manifest:
    """Return ``files`` (without checksums) and ``links`` of a directory. ``limit``: MiB.

    Raises RequestError with everything that is wrong.
    """
    found: Manifest = {"files": [], "links": []}
    faults = []
    for name in listed(source):
        try:
            wrong = _add(found, source, name)
        except FileNotFoundError:
            continue  # git knows it, and it was deleted
        except OSError as error:
            wrong = f"cannot be read ({error.strerror})"
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
            wrong = "has a control character in its name"
        if wrong:
            where, hint = f"--sync {f'{source}/{name}'!r}", "add it to .gitignore, or remove it"
            faults.append(Fault(where=where, what=wrong, hint=hint))
    if len(faults) > MOST_FAULTS:
        more = f"{len(faults) - MOST_FAULTS} more files cannot be sent"
        faults = [*faults[:MOST_FAULTS], Fault(where="--sync", what=more)]
    refuse(faults)
    refuse(faults_of_sizes(source, {name: size for name, size, _ in found["files"]}, limit))
    return found


def _add(found: Manifest, source: str, name: str) -> str:
    """Add a file to those that were found, or return what is wrong with it. Raises OSError."""
    path = f"{source}/{name}"
    status = os.lstat(path)
    if stat.S_ISREG(status.st_mode):
        found["files"].append((name, status.st_size, bool(status.st_mode & 0o111)))
        return "" if os.access(path, os.R_OK) else "cannot be read (permission denied)"
    if stat.S_ISLNK(status.st_mode):
        target = os.readlink(path)  # noqa: PTH115
        found["links"].append((name, target))
        there = os.path.normpath(PurePosixPath(name).parent / target)
        leaves = target.startswith("/") or there.partition("/")[0] == ".."
        return f"is a link to {target}, which is not sent with it" if leaves else ""
    kind = (
        "socket" if stat.S_ISSOCK(status.st_mode) else "FIFO" if stat.S_ISFIFO(status.st_mode) else "device"
    )
    return f"is a {kind}, not a file"


def listed(source: str) -> list[str]:
    """Return the paths in a directory that git does not ignore; all where there is no .gitignore."""
    found = _listed_by_git(source)
    if found is None:
        found = list(_walked(source))
        if any(PurePosixPath(name).name == ".gitignore" for name in found):
            if shutil.which("git") is None:
                what = f"{source} has a .gitignore, and git is not installed here"
                raise RequestError(what, where="--sync", hint="install git, whose rules these are")
            with tempfile.TemporaryDirectory() as empty:  # git's rules, without a repository of the user's
                _git("init", "--quiet", "--bare", empty)
                found = _listed_by_git(source, f"--git-dir={empty}", f"--work-tree={source}") or []
    names: list[str] = []
    for name in dict.fromkeys(one.rstrip("/") for one in found):
        path = Path(source, name)
        if name == ".":  # we are in a submodule that was not initialized and so is empty
            continue
        if path.is_dir() and not path.is_symlink():  # another repository in this one
            names += (f"{name}/{below}" for below in listed(str(path)))
        elif NEVER_SENT.isdisjoint(name.split("/")):
            names.append(name)
    return sorted(names)


def _listed_by_git(source: str, *options: str) -> list[str] | None:
    """Return what git lists; ``None``: the directory is in no repository, or there is no git."""
    words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    try:
        done = _git("-C", source, *options, *words)
    except FileNotFoundError:
        return None
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode and "not a git repository" not in said:
        raise RequestError(f"git cannot list the files of {source}: {said}", where="--sync")
    return None if done.returncode else [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        return subprocess.run(("git", *words), env=environ, capture_output=True, timeout=GIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise RequestError(
            f"git took more than {GIT_SECONDS:g} s to list the files", where="--sync"
        ) from None


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


def faults_of_sizes(source: str, sizes: Mapping[str, int], limit: int) -> Iterator[Fault]:
    """Yield what is wrong with the files as a whole: none, or too many; with where most of them are. Pure."""
    total, parts = sum(sizes.values()), Counter[str]()
    if not sizes:
        what, hint = f"{source} has no file to send", f"see what is ignored: git -C {source} status --ignored"
        yield Fault(where="--sync", what=what, hint=hint)
    if total <= limit * MIB and len(sizes) <= MOST_FILES:
        return
    for name, size in sizes.items():
        parts["/".join(name.split("/")[:2])] += size
    largest = "; ".join(f"{part} {byte_size(size)}" for part, size in parts.most_common(3))
    what = (
        f"{source} has {plural(len(sizes), 'file')} of {byte_size(total)}; at most {MOST_FILES:,} files and "
    )
    what += f"{limit} MiB are sent. Largest: {largest}"
    hint = f"list what is not code in .gitignore, or allow more: --sync-limit {-(-total // MIB)}"
    yield Fault(where="--sync", what=what, hint=hint)


# --- the copy here ----------------------------------------------------------------------------------------


def manifest_of(source: str, found: Manifest) -> Manifest:
    """Read all files; return what a copy of them is checked by. Raises RequestError."""
    faults, rows = [], []
    for name, _, is_program in found["files"]:
        try:
            before = os.lstat(f"{source}/{name}")
            digest = code_store.checksum(Path(source, name))
            after = os.lstat(f"{source}/{name}")
            is_same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
            wrong = "" if is_same else "changed while it was read"
            rows.append((name, after.st_size, is_program, digest))
        except OSError as error:
            wrong = f"cannot be read ({error.strerror})"
        if wrong:
            where, hint = f"--sync {f'{source}/{name}'!r}", "start again when it is complete"
            faults.append(Fault(where=where, what=wrong, hint=hint))
    refuse(faults)
    manifest = {"files": rows, "links": found["links"]}
    return {"digest": code_store.digest_of(manifest), **manifest}


def copied(code: Code, manifest: Manifest, target: str, environ: Mapping[str, str]) -> str:
    """Return the tree of a copy on this machine, made where there is none. Raises RefusedError."""
    order = {"target": target, "digest": code.digest, "bytes": code.size, "rsync": False}
    known = code_store.answer({**order, "do": "begin"}, environ)
    if not {"tree", "wrong"} & known.keys():
        try:
            with packed(code.source, manifest) as archive:
                archive.seek(0)
                known = code_store.answer({**order, "do": "receive", "manifest": manifest}, environ, archive)
        except OSError as error:
            known = {"wrong": f"{error.filename or tempfile.gettempdir()}: {error.strerror or error}"}
    if "wrong" in known:
        raise RefusedError(known["wrong"], where="--sync on this machine", hint=MORE_ROOM)
    return str(known["tree"])


def packed(directory: str, manifest: Manifest, before: bytes = b"") -> IO[bytes]:
    """Return a temporary file with ``before`` and a tar archive of the files."""

    def nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    made = tempfile.NamedTemporaryFile(prefix="rl-code-")  # noqa: SIM115 - the caller's
    made.write(before)
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=1) as archive:
        for name, *_ in (*manifest["files"], *manifest["links"]):
            archive.add(f"{directory}/{name}", name, recursive=False, filter=nobodys)
    made.flush()
    return made
