"""Runs a command with a deadline: its output as it comes and as a whole, and nothing of it left behind.

``stoppable`` makes signals end a build in order.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

from ringleader.errors import StoppedError
from ringleader.launch.signals import CAUGHT

GRACE_SECONDS = 3.0
"""Between SIGTERM and SIGKILL."""
DRAIN_SECONDS = 10.0
"""What is waited for the end of the output once the command itself has ended."""
GLANCE_SECONDS = 0.5
"""How often the one who waits is called while time passes."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command gave."""

    code: int | None
    """``None``: it did not end in time."""
    out: str
    err: str
    seconds: float = 0.0

    @property
    def words(self) -> str:
        """What it has to say for itself, on one line."""
        return " ".join(f"{self.err} {self.out}".split())


def answer(
    argv: tuple[str, ...],
    *,
    environ: Mapping[str, str],
    seconds: float,
    took: Callable[[bytes], None] | None = None,
    passing: Callable[[float], None] = lambda seconds: None,
    grace: float = GRACE_SECONDS,
    drain: float = DRAIN_SECONDS,
) -> Answer:
    """Run a command to its end, or to its deadline; then its process group ends.

    ``took``: gets its output as it comes, that of both streams, and nothing is kept. ``passing``: gets the
    seconds since its start, about twice a second.
    """
    began, last = time.monotonic(), seconds
    kept: dict[str, bytes] = {"out": b"", "err": b""}
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        try:
            process = stack.enter_context(_started(argv, environ, grace, is_joined=took is not None))
        except OSError as error:
            return Answer(code=127, out="", err=str(error.strerror or error))
        for name, stream in (("out", process.stdout), ("err", process.stderr)):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ, name)
        while selector.get_map() or process.poll() is None:
            now = time.monotonic() - began
            passing(now)
            if process.poll() is not None:
                last = min(last, now + drain)
            if now > last:
                break
            glance = min(GLANCE_SECONDS, max(0.0, last - now) + 0.01)
            if not selector.get_map():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(glance)
                continue
            for key, _ in selector.select(glance):
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                elif took is not None:
                    took(data)
                else:
                    kept[key.data] += data
        code = process.poll()
    out, err = (kept[name].decode(errors="replace") for name in ("out", "err"))
    return Answer(code=code, out=out, err=err, seconds=time.monotonic() - began)


@contextmanager
def _started(
    argv: tuple[str, ...], environ: Mapping[str, str], grace: float, *, is_joined: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in its own process group; end that politely first."""
    process = None
    try:
        with _held_signals():
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if is_joined else subprocess.PIPE,
                env=dict(environ),
                start_new_session=True,
            )
        yield process
    finally:
        if process is not None:
            _end(process, grace)


def _end(process: subprocess.Popen[bytes], grace: float) -> None:
    """End a process group. A signal to us cuts the grace short, and leaves none of it behind."""
    try:
        if process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(grace)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def _held_signals() -> Iterator[None]:
    """Handle signals only at the end: one that raises inside ``Popen`` would leave a child nobody knows."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: handler for number in CAUGHT if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)


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
