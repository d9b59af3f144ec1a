"""Runs the program that a source of hosts asks, without a shell, with a deadline; it outlives nobody."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from ringleader.errors import RequestError
from ringleader.launch.elastic.host_answers import no_answer
from ringleader.ranks import parent_death

MOST_OUTPUT = 1 << 20
"""Bytes that a program may print: more are no list of hosts."""
_END_SECONDS = 1.0
"""Between SIGTERM and SIGKILL of a program that is ended."""
_TICK_SECONDS = 0.05
_LAST_WORDS = 300
"""Characters of a program's own explanation."""


def command_words(text: str, option: str) -> tuple[str, ...]:
    """Split a program and its arguments as a shell would, but run nothing; a file's name is taken as it is.

    RequestError where there is no such program, or it may not be run.
    """
    try:
        words = (text,) if Path(text).is_file() else tuple(shlex.split(text))
    except ValueError as error:
        raise RequestError(f"{text!r} has unmatched quotes: {error}", where=option) from None
    if not words:
        raise RequestError(
            "names no program", where=option, hint="give the path of a script that prints hosts"
        )
    program = words[0]
    if shutil.which(program) is None:
        if not Path(program).is_file():
            hint = "give its path; words behind it are its arguments"
            raise RequestError(f"there is no program {program}", where=option, hint=hint)
        raise RequestError(f"{program} may not be run", where=option, hint=f"chmod +x {program}")
    return words


def output_of(
    argv: tuple[str, ...],
    *,
    seconds: float,
    environ: Mapping[str, str] | None = None,
    stop: int | None = None,
) -> str:
    """Run a program and return what it printed to standard output.

    Raises HostSourceError where it cannot be started, fails, prints too much, or runs for more than
    ``seconds``, after which it is ended; KeyboardInterrupt once ``stop`` (a descriptor) is readable.
    """
    name = argv[0]
    try:
        process = subprocess.Popen(
            parent_death.argv(_by_shell(argv), seconds=_END_SECONDS),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=environ,
        )
    except OSError as error:
        raise no_answer(name, f"cannot be started: {error.strerror}") from None
    try:
        out, err = _read(process, name, time.monotonic() + seconds, seconds, stop)
    finally:
        _end(process)
    if process.returncode:
        raise no_answer(name, _failure(process.returncode, err))
    return out.decode("utf-8", errors="replace")


def _by_shell(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that run a program; a text without ``#!`` is one for ``sh``, as in every shell."""
    path = shutil.which(argv[0])
    if path is None:
        return argv
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            start = file.read(256)
    except OSError:
        return argv
    return argv if start.startswith(b"#!") or b"\0" in start else ("/bin/sh", path, *argv[1:])


def _read(
    process: subprocess.Popen[bytes], name: str, until: float, seconds: float, stop: int | None
) -> tuple[bytes, bytes]:
    """Read both streams to the program's end; what it left in the background is not waited for."""
    assert process.stdout is not None and process.stderr is not None
    streams = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    out, err = streams.values()
    poll = select.poll()
    for fd in streams:
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
    if stop is not None:
        poll.register(stop, select.POLLIN)
    while True:
        ended = process.poll() is not None
        for fd, _ in poll.poll(0 if ended else _TICK_SECONDS * 1000):
            if fd == stop:
                raise KeyboardInterrupt
            if not _take(fd, streams[fd]):
                poll.unregister(fd)
        if len(out) > MOST_OUTPUT:
            raise no_answer(
                name, f"printed more than {MOST_OUTPUT >> 20} MiB", "it has to print one host a line"
            )
        if ended:
            return bytes(out), bytes(err)
        if time.monotonic() > until:
            raise no_answer(name, f"was ended: it had not answered after {seconds:g} s")


def _take(fd: int, into: bytearray) -> bool:
    """Read what is there; say whether more may come."""
    with contextlib.suppress(BlockingIOError):
        while len(into) <= MOST_OUTPUT:
            data = os.read(fd, 65536)
            if not data:
                return False
            into += data
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program if it still runs, with all that it started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_SECONDS + 2.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _failure(code: int, err: bytes) -> str:
    how = f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"
    words = err.decode("utf-8", errors="replace").strip().splitlines()
    return f"{how}: {words[-1][:_LAST_WORDS]}" if words else how
