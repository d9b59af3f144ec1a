"""A job's directory on one host, and the removal of what a job leaves behind.

    <base>/ringleader-<uid>/<job id>/<host key>/lock       held by everyone who lives for the job there
                                    /<host key>/segments   shared memory files that its ranks have mapped
                                    /session/              where the MPI keeps its own session directories
    /dev/shm/ringleader-<job id>/                          shared memory of an MPI that lets us say where

The lock is shared (``flock``), the kernel drops it when a process ends however it ends, and whoever gets it
exclusively knows that nobody of that job lives on this host: then, and only then, things are removed. The
last one to leave does it; after a SIGKILL of everything the next start does.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time

from ringleader.agents.light_imports import suppress

SHM = "/dev/shm"
FOREIGN_AGE = 3600.0
"""Seconds after which a dead directory of another host that shares our /tmp is removed from here."""
UNBORN_AGE = 60.0
"""Seconds after which a job directory that never got a lock counts as dead."""
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def base_directory(tmp: str, uid: int) -> str:
    """Return the directory of all jobs of one user on a host."""
    return f"{tmp}/ringleader-{uid}"


def backing_directory(job_id: str, shm: str = SHM) -> str:
    """Return where an MPI that can be configured puts the shared memory files of a job."""
    return f"{shm}/ringleader-{job_id}"


def _own_directory(path: str) -> None:
    """Make a directory that only we can enter; refuse one that somebody else put there."""
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)  # noqa: PTH102 - no pathlib here: it would cost each agent 5 ms
    # One look only: whoever removes it between two looks must not pass for somebody else's.
    status = os.lstat(path)
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
        raise PermissionError(f"{path} belongs to somebody else")


class JobDirectory:
    """This host's part of a job's directory, locked for as long as the process lives."""

    def __init__(self, job_directory: str, key: str, shm: str = SHM) -> None:
        """Make the directory where it is missing and take the shared lock."""
        self.job = job_directory
        self.key = key
        self.path = f"{job_directory}/{key}"
        self.shm = shm
        self._known: set[str] = set()
        self._fd = self._locked()

    @property
    def job_id(self) -> str:
        """The job's name: the last part of the directory's path."""
        return self.job.rpartition("/")[2]

    def _locked(self) -> int:
        for attempt in range(100):
            try:
                for path in (self.job.rpartition("/")[0], self.job, self.path, f"{self.job}/session"):
                    _own_directory(path)
                fd = os.open(f"{self.path}/lock", os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:  # the last job that left has removed the directory of all jobs
                if attempt == 99:
                    raise
                continue
            fcntl.flock(fd, fcntl.LOCK_SH)
            # Somebody who took it for dead may have removed it between our two calls.
            with suppress(OSError):
                if os.stat(f"{self.path}/lock").st_ino == os.fstat(fd).st_ino:  # noqa: PTH116
                    return fd
            os.close(fd)
        raise OSError(f"{self.path}: its lock keeps being removed")

    def make_backing(self) -> None:
        """Make the directory for shared memory files; without a /dev/shm of ours there is none."""
        with suppress(OSError):
            _own_directory(backing_directory(self.job_id, self.shm))

    def remember(self, segments: set[str]) -> None:
        """Write down shared memory files of our ranks, with their inodes, so that anybody can remove them."""
        lines = []
        for path in segments - self._known:
            with suppress(OSError):
                lines.append(f"{os.stat(path).st_ino} {path}\n")  # noqa: PTH116
            self._known.add(path)
        if lines:
            # A full disk: what is not noted may stay behind, but the rank continues.
            with suppress(OSError), open(f"{self.path}/segments", "a", encoding="utf-8") as file:  # noqa: PTH123
                file.write("".join(lines))

    def leave(self) -> None:
        """Give the lock back; the last one on this host removes everything of the job there."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        with suppress(OSError):
            _remove_if_dead(self.job, self.key, self.shm)
        with suppress(OSError):  # it stays while another job has something in it
            os.rmdir(self.job.rpartition("/")[0])  # noqa: PTH106
        os.close(self._fd)


def _remove_if_dead(job: str, key: str, shm: str) -> bool:
    """Remove one host's part of a job where nobody holds its lock; say whether it was so.

    The lock is held meanwhile: whoever wants it just now gets it afterwards, and sees that the file is gone.
    """
    try:
        fd = os.open(f"{job}/{key}/lock", os.O_RDWR)
    except FileNotFoundError:
        if time.time() - os.lstat(f"{job}/{key}").st_mtime <= UNBORN_AGE:
            return False
        _remove(job, key, shm)
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(job, key, shm)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def _is_job(name: str) -> bool:
    return 6 <= len(name) <= 41 and name[0] != "-" and _LETTERS.issuperset(name)


def _remove_tree(path: str) -> None:
    """Remove a directory of ours and everything in it, as far as possible; links are not followed.

    ``shutil.rmtree`` also minds others who exchange directories meanwhile; nobody else can enter these.
    """
    with suppress(OSError):
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                _remove_tree(entry.path)
            else:
                with suppress(OSError):
                    os.unlink(entry.path)  # noqa: PTH108
        os.rmdir(path)  # noqa: PTH106


def _remove(job: str, key: str, shm: str) -> None:
    """Remove one host's part of a dead job, and the job's directory when it was the last part."""
    with suppress(OSError), open(f"{job}/{key}/segments", encoding="utf-8") as file:  # noqa: PTH123
        for line in file:
            inode, _, path = line.rstrip("\n").partition(" ")
            with suppress(OSError):
                if path.startswith(f"{shm}/") and str(os.lstat(path).st_ino) == inode:
                    os.unlink(path)  # noqa: PTH108
    _remove_tree(backing_directory(job.rpartition("/")[2], shm))
    _remove_tree(f"{job}/{key}")
    with suppress(OSError):
        if set(os.listdir(job)) <= {"session"}:  # noqa: PTH208
            _remove_tree(job)


def sweep(base: str, key: str, *, shm: str = SHM, now: float | None = None) -> list[str]:
    """Remove what dead jobs left on this host; return the names of the jobs that were removed.

    ``key`` is this host's: of other hosts that share the directory only old remains are taken.
    """
    now = time.time() if now is None else now
    removed = []
    try:
        jobs = [name for name in os.listdir(base) if _is_job(name)]  # noqa: PTH208
    except OSError:
        return []
    for name in jobs:
        job = f"{base}/{name}"
        with suppress(OSError):
            age = now - os.lstat(job).st_mtime
            parts = [part for part in os.listdir(job) if part != "session"]  # noqa: PTH208
            if not parts and age > UNBORN_AGE:
                _remove_tree(job)
            for part in parts:
                if (part == key or age > FOREIGN_AGE) and _remove_if_dead(job, part, shm):
                    removed.append(name)
    return removed
