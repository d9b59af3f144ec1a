"""The MPI's own launcher as we see it: started through its supervisor, what it writes kept for later.

Also how many files it and the launcher must have open at once. The supervisor is ``mpirun_supervisor``, and
``mpi_discovery`` finds the MPI.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringleader.errors import RefusedError
from ringleader.launch.mpirun import mpirun_supervisor

if TYPE_CHECKING:  # this is imported before anything else
    from ringleader.plan.rank_placement import Plan

STOP_SECONDS = mpirun_supervisor.GRACE + 3.0
"""From our word to the supervisor until mpirun's end; if it takes longer it is killed, mpirun with it."""
OUTPUT_SECONDS = 2.0
"""From mpirun's end to the end of its output, which somebody else may hold open."""
WORD_SECONDS = 10.0
"""For the supervisor to take our words out of its pipe."""
_PROGRAM = (
    f"import sys; sys.path.append({str(Path(mpirun_supervisor.__file__).parents[3])!r}); "
    f"from {mpirun_supervisor.__name__} import main; main()"
)
"""What its interpreter runs: no file, so that all of it comes from the byte-code cache."""
_KEPT = 64 * 1024
"""Bytes of mpirun's own output that are kept: its beginning and its end, each half."""
_OTHER_FILES = 64
"""Files that the launcher and mpirun each have open besides those that are counted."""
_FILES_OF_RANK, _FILES_OF_HOST = 4, 4
"""Files of mpirun's, or of its daemon, for each rank of this machine and for each other host (counted for
Open MPI 4 and 5 and MPICH: 2 to 4)."""


class MpirunProcess:
    """mpirun's supervisor, which starts while the launcher still asks the hosts, and then mpirun itself.

    Once started, it serves what happens on its descriptors; ``watch`` sees that nobody waits too long for it.
    """

    def __init__(self) -> None:
        """Start the supervisor; nothing of the job is known yet."""
        self._status, self._status_there = os.pipe()
        self.process = subprocess.Popen(
            (sys.executable, "-I", "-S", "-c", _PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(self._status_there,),
            start_new_session=True,
            env={"PATH": os.defpath},
        )
        os.close(self._status_there)
        assert self.process.stdin is not None and self.process.stdout is not None
        self._orders, self._output = self.process.stdin, self.process.stdout.fileno()
        self._closed = False
        self._selector: selectors.BaseSelector | None = None
        self._open: set[int] = set()
        """Descriptors that are served."""
        self.exit_code: int | None = None
        """mpirun's exit code once it has ended, negative for a signal."""
        self.supervisor_lost = False
        """mpirun's supervisor was killed, and mpirun with it."""
        self.supervisor_signaled: float | None = None
        """When (``time.monotonic``) somebody told the supervisor to end."""
        self.failure = ""
        """Why mpirun could not even be started."""
        self._written = bytearray()
        self._status_text = b""
        self._ended_at = 0.0
        self._kill_at: float | None = None

    def start(
        self,
        selector: selectors.BaseSelector,
        *,
        argv: tuple[str, ...],
        environment: Mapping[str, str],
        directory: str,
        key: str,
        grace: float,
        container: Mapping[str, Any] | None = None,
    ) -> None:
        """Have the supervisor start mpirun. ``grace``: what ranks are given to end, in seconds.

        ``container``: that mpirun is in, see ``ContainedLaunch.order``.
        """
        order = {
            "argv": argv,
            "env": dict(environment),
            "cwd": "/",
            "directory": directory,
            "key": key,
            "grace": grace,
            "container": container,
            "parent": os.getpid(),
            "status": self._status_there,
        }
        self._say(json.dumps(order).encode() + b"\n")
        self._selector = selector
        for fd in (self._status, self._output):
            os.set_blocking(fd, False)
            selector.register(fd, selectors.EVENT_READ, self.serve)
            self._open.add(fd)

    def _say(self, words: bytes) -> None:
        """Send the supervisor an order or a word; one that does not listen (it was stopped) is killed."""
        fd, until = self._orders.fileno(), time.monotonic() + WORD_SECONDS
        os.set_blocking(fd, False)
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        with contextlib.suppress(BrokenPipeError):
            while words:
                with contextlib.suppress(BlockingIOError):
                    words = words[os.write(fd, words) :]
                    continue
                if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                    self.process.kill()
                    return

    def serve(self, fd: int) -> None:
        """Read what mpirun or its supervisor wrote, unless we have let go of it since that was seen."""
        if fd not in self._open:
            return
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        if not data:
            self._let_go(fd)
            if fd == self._status and self.exit_code is None:
                self.supervisor_lost = True
                self._has_ended_within(1.0)
                self._end(min(0, self.process.poll() or 0) or -signal.SIGKILL)
        elif fd == self._status:
            *lines, self._status_text = (self._status_text + data).split(b"\n")
            for line in lines:
                words = json.loads(line)
                self.failure = words.get("failed", self.failure)
                if "signaled" in words:
                    self.supervisor_signaled = time.monotonic()
                if "ended" in words:
                    self._end(words["ended"])
        else:
            self._written += data
            if len(self._written) > 2 * _KEPT:
                del self._written[_KEPT // 2 : -_KEPT // 2]

    def _end(self, code: int) -> None:
        self.exit_code, self._ended_at = code, time.monotonic()

    def _let_go(self, *fds: int) -> None:
        for fd in self._open.intersection(fds):
            assert self._selector is not None
            self._selector.unregister(fd)
            self._open.discard(fd)

    def _has_ended_within(self, seconds: float) -> bool:
        """Wait for the supervisor; say whether it has ended. ``Popen.wait`` would look only every 50 ms."""
        try:
            fd = os.pidfd_open(self.process.pid)
        except OSError:  # Linux before 5.3
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
            return self.process.poll() is not None
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            return bool(poll.poll(seconds * 1000))
        finally:
            os.close(fd)

    def watch(self) -> None:
        """Wait for nobody too long: neither a supervisor that does not answer nor an output held open."""
        now = time.monotonic()
        if self._kill_at is not None and self.exit_code is None and now > self._kill_at:
            self._kill_at = None
            self.process.kill()
        if self.exit_code is not None and now > self._ended_at + OUTPUT_SECONDS:
            self._let_go(self._output)

    @property
    def ended(self) -> bool:
        """True when mpirun has ended and all it wrote is here."""
        return self.exit_code is not None and self._output not in self._open

    def output(self) -> str:
        """Return what mpirun itself wrote."""
        return self._written.decode(errors="replace")

    def stop(self, *, hard: bool = False) -> None:
        """End mpirun: SIGTERM and soon SIGKILL, or SIGKILL at once; see ``watch`` for who does not obey."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + STOP_SECONDS
        self._say(b"kill\n" if hard else b"stop\n")

    def close(self) -> None:
        """Let go of the supervisor, which ends what is left, and wait for it; once."""
        if self._closed:
            return
        self._closed = True
        self._let_go(self._status, self._output)
        with contextlib.suppress(BrokenPipeError):
            self._orders.close()
        os.close(self._status)
        assert self.process.stdout is not None
        self.process.stdout.close()
        if not self._has_ended_within(mpirun_supervisor.GRACE + 8.0):
            self.process.kill()
        self.process.wait()


# --- open files -------------------------------------------------------------------------------------------


def open_files_needed(plan: Plan, *, files: bool) -> int:
    """Return how many files the launcher or mpirun may have open at once, whichever has more.

    ``files``: whether there is an output directory.
    """
    here = sum(count for host, count in zip(plan.hosts, plan.counts(), strict=True) if host.is_local)
    launcher = plan.size * (3 if files else 1) + len(plan.hosts)
    return _OTHER_FILES + max(launcher, _FILES_OF_RANK * here + _FILES_OF_HOST * len(plan.hosts))


@contextlib.contextmanager
def open_files(needed: int, pid: int) -> Iterator[int]:
    """Raise the limit for us and for process ``pid`` as `allow_open_files` does; yield what it was."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allow_open_files(needed, pid)
    try:
        yield soft
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def allow_open_files(needed: int, pid: int) -> None:
    """Raise the limit for us and for process ``pid``, where it is too low.

    Past the limit an mpirun may crash instead of saying so. Raises RefusedError where the hard limit does not
    allow as many.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise RefusedError(
            f"the job needs {needed} open files on this machine, {hard} are allowed",
            where="open files",
            hint="raise the hard limit (ulimit -Hn, /etc/security/limits.conf), or start fewer ranks here",
        )
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    # Not to the hard limit: some MPIs go through all numbers up to the limit whenever they start a process.
    raised = 2 * needed if hard == resource.RLIM_INFINITY else min(2 * needed, hard)
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (raised, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
