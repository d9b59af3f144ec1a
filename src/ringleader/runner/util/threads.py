"""Functions in the background. Path, names and meanings are Horovod's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
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
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}, for a single argument use (arg,)")

    def quietly() -> None:
        with contextlib.suppress(Exception):
            target(*args)

    thread = threading.Thread(
        target=quietly if silent else target, args=() if silent else args, name=name, daemon=daemon
    )
    thread.start()
    return thread
