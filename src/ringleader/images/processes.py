"""Runs commands with a deadline: short ones that answer, and a builder whose lines are read as they come.

Neither leaves processes behind; ``stoppable`` makes signals end a build in order.
"""

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
from ringleader.launch.signals import CAUGHT

GRACE_SECONDS = 10.0
"""Between SIGTERM and SIGKILL of a builder."""
END_SECONDS = 3.0
"""The same of a short command that took too long, or that nobody waits for any more."""
DRAIN_SECONDS = 10.0
"""What is waited for the end of the output once the builder itself has ended."""
GLANCE_SECONDS = 0.5
"""How often the one who waits is told that time passes."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a short command gave."""

    code: int | None
    """``None``: it did not end in time."""
    out: str
    err: str

    @property
    def words(self) -> str:
        """What it has to say for itself, on one line."""
        return " ".join(f"{self.err} {self.out}".split())


def answer(argv: tuple[str, ...], *, environ: Mapping[str, str], seconds: float) -> Answer:
    """Run a short command. What it started ends with it where its time is over."""
    try:
        with _started(argv, environ, stderr=subprocess.PIPE, grace=END_SECONDS) as process:
            try:
                out, err = process.communicate(timeout=seconds)
                code = process.returncode
            except subprocess.TimeoutExpired:
                code = None
                _end(process, END_SECONDS)
                out, err = process.communicate()
    except OSError as error:
        return Answer(code=127, out="", err=str(error.strerror or error))
    return Answer(code=code, out=out.decode(errors="replace"), err=err.decode(errors="replace"))


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
    """Run a command to its end; neither it nor what it started outlives us.

    ``line``: gets each line of its output. ``passing``: gets the seconds since its start, about twice a
    second. ``log``: gets all it prints. ``seconds``: its deadline. ``drain``: what is waited for the end of
    its output once it has ended.
    """
    began, last, rest, more = time.monotonic(), seconds, b"", True
    ours = parent_death.argv(argv, seconds=GRACE_SECONDS - 1.0)
    with (
        _started(ours, environ, stderr=subprocess.STDOUT, grace=GRACE_SECONDS) as process,
        selectors.DefaultSelector() as selector,
    ):
        assert process.stdout is not None
        selector.register(process.stdout, selectors.EVENT_READ)
        while more or process.poll() is None:
            now = time.monotonic() - began
            passing(now)
            if process.poll() is not None:
                last = min(last, now + drain)
            if now > last:
                break
            for key, _ in selector.select(min(GLANCE_SECONDS, max(0.0, last - now) + 0.01)):
                data = os.read(key.fd, 65536)
                log.write(data)
                *complete, rest = (rest + data).split(b"\n")
                for one in complete:
                    line(_text(one))
                if not data:
                    more = False
                    selector.unregister(process.stdout)
        if rest:
            line(_text(rest))
        code = process.poll()
        _end(process, GRACE_SECONDS)  # also what it started and left
        return Ended(exit_code=code, seconds=time.monotonic() - began)


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]


@contextmanager
def _started(
    argv: tuple[str, ...], environ: Mapping[str, str], *, stderr: int, grace: float
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a process group of its own, which ends with us where the command has not."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=dict(environ),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            _end(process, grace)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _end(process: subprocess.Popen[bytes], grace: float) -> None:
    """End a process and its group, politely first; nothing of the group is left."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def stoppable() -> Iterator[None]:
    """Turn the first signal that would end us into StoppedError, so that what was made is removed.

    Those that follow are ignored. Outside the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in CAUGHT}
    ours = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    def stop(number: int, frame: FrameType | None) -> None:
        for one in ours:
            signal.signal(one, signal.SIG_IGN)
        raise StoppedError(number, "the image was built")

    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            handler = before[number]
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
