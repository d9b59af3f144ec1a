"""Functions in the background. Path, names and meanings are Horovod's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Call ``target(*args)`` in a thread of its own and return that thread.

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
