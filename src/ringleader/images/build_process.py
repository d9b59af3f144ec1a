"""Runs a builder and hands on its lines, with a deadline; signals to us end it and what it started."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import BinaryIO

from ringleader.agents import parent_death
from ringleader.errors import StoppedError
from ringleader.launch import signals

GRACE_SECONDS = 10.0
"""Between SIGTERM and SIGKILL."""
BEFORE = "the image was built"
DRAIN_SECONDS = 10.0
"""What is waited for the end of the output once the builder itself has ended."""
GLANCE_SECONDS = 0.5
"""How often the one who waits is told that time passes."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn signals that would end us at once into StoppedError, so that what was made is removed.

    ``run`` listens to them in its own way meanwhile. Outside the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise StoppedError(number, BEFORE)

    before = {number: signal.getsignal(number) for number in signals.CAUGHT}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a builder ended."""

    exit_code: int | None
    """``None``: it was ended because the time was over."""
    seconds: float


def run(
    argv: tuple[str, ...],
    *,
    environ: Mapping[str, str],
    line: Callable[[str], None],
    passing: Callable[[float], None],
    log: BinaryIO,
    seconds: float,
    drain: float = DRAIN_SECONDS,
) -> Ended:
    """Run a command to its end.

    ``line``: told each line of its output. ``passing``: told the seconds since its start, about twice a
    second. ``log``: gets all it prints. ``seconds``: its deadline. ``drain``: what is waited for the end of
    its output once it has ended. Raises StoppedError where a signal came; the command's process group has
    ended then, as it has in any case.
    """
    began = time.monotonic()
    with signals.caught() as caught, _started(argv, environ) as process:
        assert process.stdout is not None
        lines = _Lines(line, log)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, "output")
            if caught is not None:
                selector.register(caught, selectors.EVENT_READ, "signal")
            last = seconds
            while lines.more or process.poll() is None:
                now = time.monotonic() - began
                passing(now)
                if process.poll() is not None:
                    last = min(last, now + drain)
                if now > last:
                    break
                for key, _ in selector.select(min(GLANCE_SECONDS, max(0.0, last - now) + 0.01)):
                    if key.data == "signal":
                        raise StoppedError(os.read(key.fd, 1)[0], BEFORE)
                    if not lines.take(os.read(key.fd, 65536)):
                        selector.unregister(process.stdout)
        lines.finish()
        return Ended(exit_code=process.poll(), seconds=time.monotonic() - began)


@contextmanager
def _started(argv: tuple[str, ...], environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a process group of its own; in the end nothing of that is left."""
    process = subprocess.Popen(
        parent_death.argv(argv, seconds=GRACE_SECONDS - 1.0),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environ),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end(process)
        if process.stdout is not None:
            process.stdout.close()


class _Lines:
    """Cuts output into lines."""

    def __init__(self, line: Callable[[str], None], log: BinaryIO) -> None:
        self._line = line
        self._log = log
        self._rest = b""
        self.more = True
        """False once the output has ended."""

    def take(self, data: bytes) -> bool:
        self._log.write(data)
        self.more = bool(data)
        *complete, self._rest = (self._rest + data).split(b"\n")
        for one in complete:
            self._tell(one)
        return self.more

    def finish(self) -> None:
        if self._rest:
            self._tell(self._rest)

    def _tell(self, data: bytes) -> None:
        self._line(data.decode(errors="replace").rstrip("\r").rpartition("\r")[2])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group, politely first; nothing of the group is left."""
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
