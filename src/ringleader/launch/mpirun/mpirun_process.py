"""The MPI's own launcher as we see it: started through its supervisor, what it writes kept for later."""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ringleader.launch.mpirun import mpirun_supervisor

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


class MpirunStandby:
    """mpirun's supervisor: it starts while the launcher still asks the hosts, and waits for its order."""

    def __init__(self) -> None:
        """Start it; nothing of the job is known yet."""
        self.status, self.status_there = os.pipe()
        self.process = subprocess.Popen(
            (sys.executable, "-I", "-S", "-c", _PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(self.status_there,),
            start_new_session=True,
            env={"PATH": os.defpath},
        )
        os.close(self.status_there)
        self._open = True

    def say(self, words: bytes) -> None:
        """Send it an order or a word; one that does not listen (it was stopped) is killed."""
        assert self.process.stdin is not None
        fd, until = self.process.stdin.fileno(), time.monotonic() + WORD_SECONDS
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

    def close(self) -> None:
        """Let go of it, so that it ends what is left, and wait for it; a second time nothing happens."""
        if not self._open:
            return
        self._open = False
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        os.close(self.status)
        self.process.stdout.close()
        if not _ended_within(self.process, mpirun_supervisor.GRACE + 8.0):
            self.process.kill()
        self.process.wait()


def _ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process; say whether it has ended. ``Popen.wait`` would look only every 50 ms."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:  # Linux before 5.3
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return process.poll() is not None
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(fd)


class MpirunProcess:
    """A running mpirun. Register it, feed it what happens on its descriptors, ask how it is."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        standby: MpirunStandby,
        *,
        argv: tuple[str, ...],
        environment: Mapping[str, str],
        directory: str,
        key: str,
        grace: float,
    ) -> None:
        """Tell the supervisor to start mpirun. ``grace``: what ranks are given to end, in seconds."""
        self._selector = selector
        self.exit_code: int | None = None
        """mpirun's exit code once it has ended, negative for a signal."""
        self.supervisor_lost = False
        """mpirun's supervisor was killed, and mpirun with it."""
        self.supervisor_signalled: float | None = None
        """When (``time.monotonic``) somebody told the supervisor to end."""
        self.failure = ""
        """Why mpirun could not even be started."""
        self._written = bytearray()
        self._ended_at = 0.0
        self._kill_at: float | None = None
        self._standby = standby
        self._status = standby.status
        self._status_text = b""
        order = {
            "argv": argv,
            "env": dict(environment),
            "cwd": "/",
            "directory": directory,
            "key": key,
            "grace": grace,
            "parent": os.getpid(),
            "status": standby.status_there,
        }
        standby.say(json.dumps(order).encode() + b"\n")
        assert standby.process.stdout is not None
        self._output = standby.process.stdout.fileno()
        self._open = {self._status, self._output}
        for fd in self._open:
            os.set_blocking(fd, False)
            selector.register(fd, selectors.EVENT_READ, self)

    def serve(self, fd: int) -> None:
        """Read what mpirun or its supervisor wrote, unless we have let go of it since that was seen."""
        if fd not in self._open:
            return
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(fd)
            self._open.discard(fd)
            if fd == self._status and self.exit_code is None:
                self.supervisor_lost = True
                _ended_within(self._standby.process, 1.0)
                self._end(min(0, self._standby.process.poll() or 0) or -signal.SIGKILL)
        elif fd == self._status:
            self._status_text += data
            *lines, self._status_text = self._status_text.split(b"\n")
            for line in lines:
                words = json.loads(line)
                self.failure = words.get("failed", self.failure)
                if "signalled" in words:
                    self.supervisor_signalled = time.monotonic()
                if "ended" in words:
                    self._end(words["ended"])
        else:
            self._written += data
            if len(self._written) > 2 * _KEPT:
                del self._written[_KEPT // 2 : -_KEPT // 2]

    def _end(self, code: int) -> None:
        self.exit_code = code
        self._ended_at = time.monotonic()

    def watch(self) -> None:
        """Wait for nobody too long: neither a supervisor that does not answer nor an output held open."""
        now = time.monotonic()
        if self._kill_at is not None and self.exit_code is None and now > self._kill_at:
            self._kill_at = None
            self._standby.process.kill()
        if (
            self.exit_code is not None
            and self._output in self._open
            and now > self._ended_at + OUTPUT_SECONDS
        ):
            self._selector.unregister(self._output)
            self._open.discard(self._output)

    @property
    def ended(self) -> bool:
        """True when mpirun has ended and all it wrote is here."""
        return self.exit_code is not None and (self._output not in self._open)

    def output(self) -> str:
        """Return what mpirun itself wrote."""
        return self._written.decode(errors="replace")

    def stop(self, *, hard: bool = False) -> None:
        """End mpirun: SIGTERM and soon SIGKILL, or SIGKILL at once; see ``watch`` for who does not obey."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + STOP_SECONDS
        self._standby.say(b"kill\n" if hard else b"stop\n")

    def close(self) -> None:
        """Let go of the supervisor, which ends what is left, and wait for it."""
        for fd in list(self._open):
            self._selector.unregister(fd)
        self._open.clear()
        self._standby.close()
