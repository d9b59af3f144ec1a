"""Functions in the background, and a shell's command that ends with us, or on an event, with what it started.

Horovod's paths are ``runner.util.threads`` and ``runner.common.util.safe_shell_exec``; names and meanings are
Horovod's. A command on ranks is in `launch`.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TextIO

from ringleader.agents import parent_death

GRACEFUL_TERMINATION_TIME_S = 5
"""Between SIGTERM and SIGKILL, in seconds."""


def execute(
    command: str,
    env: Mapping[str, str] | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    index: int | None = None,
    events: Iterable[threading.Event] | None = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Run a command in a shell; return its exit code, 128+n for signal n.

    Its output goes to the text streams ``stdout`` and ``stderr`` (``None``: our own), each line with
    ``[index]<stdout>:`` in front where ``index`` is given. Each of ``events`` ends it, and so does our own
    end, also by SIGKILL.
    """
    with subprocess.Popen(
        parent_death.argv(("/bin/sh", "-c", command), seconds=GRACEFUL_TERMINATION_TIME_S),
        env=None if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        streams = (
            (process.stdout, stdout or sys.stdout, "stdout"),
            (process.stderr, stderr or sys.stderr, "stderr"),
        )
        readers = [
            in_thread(prefix_connection, (source, target, name, index, prefix_output_with_timestamp))
            for source, target, name in streams
        ]
        over = threading.Event()
        for event in events or ():
            on_event(event, process.terminate, stop=over, silent=True)
        try:
            process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            over.set()
            for reader in readers:
                reader.join()
    code = process.returncode
    return code if code >= 0 else 128 - code


def prefix_connection(
    src_connection: Any,
    dst_stream: TextIO,
    prefix: str | None,
    index: int | None,
    prefix_output_with_timestamp: bool,
) -> None:
    """Pass on what can be read from a descriptor as text, line by line, until its end; then close it.

    With ``prefix`` and ``index`` each line begins with ``[index]<prefix>:``, and the time before that where
    it is asked for. What a carriage return ends is a line too, so that bars of progress move.
    """

    def passed_on(line: str) -> None:
        if prefix is not None and index is not None:
            when = time.asctime(time.localtime(time.time())) if prefix_output_with_timestamp else ""
            line = f"{when}[{index}]<{prefix}>:{line}"
        dst_stream.write(line)
        dst_stream.flush()

    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    held = ""
    while data := os.read(src_connection.fileno(), 65536):
        *lines, held = re.split(r"(?<=[\r\n])", held + decoder.decode(data))
        for line in lines:
            passed_on(line)
    held += decoder.decode(b"", final=True)
    if held:
        passed_on(held)
    src_connection.close()


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Call ``target(*args)`` in its own thread and return that thread.

    A ``daemon`` thread does not keep the process alive; a ``silent`` one drops the target's exceptions.
    """
    _check_args(args)

    def quietly() -> None:
        with contextlib.suppress(Exception):
            target(*args)

    thread = threading.Thread(
        target=quietly if silent else target, args=() if silent else args, name=name, daemon=daemon
    )
    thread.start()
    return thread


def on_event(
    event: threading.Event | None,
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Call ``func(*args)`` in a thread when ``event`` is set, unless ``stop`` is before; return the thread.

    ``stop`` is looked at every ``check_stop_interval_s`` seconds. ValueError where nothing can end the
    thread: without an event, and without ``stop`` where it is no ``daemon``.
    """
    if event is None:
        raise ValueError("Event must not be None")
    _check_args(args)
    if stop is None and not daemon:
        raise ValueError("Stop event must be given for non-daemon event thread")

    def wait() -> None:
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        if stop is None or not stop.is_set():
            func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, Any] | None:
    """Call ``fn`` with each list of arguments, in threads; return results by index, ``None`` without waiting.

    RuntimeError where a call has raised.
    """
    if not args_list:
        return {} if block_until_all_done else None
    pool = ThreadPoolExecutor(min(max_concurrent_executions, len(args_list)))
    futures = [pool.submit(fn, *args) for args in args_list]
    pool.shutdown(wait=block_until_all_done)
    if not block_until_all_done:
        return None
    for future in futures:
        if (error := future.exception()) is not None:
            name = getattr(fn, "__name__", repr(fn))
            raise RuntimeError(f"{name} has failed in a thread: {error}") from error
    return {index: future.result() for index, future in enumerate(futures)}


def _check_args(args: object) -> None:
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}, for a single argument use (arg,)")
