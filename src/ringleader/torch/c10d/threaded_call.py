"""A call into a library that may block for ever, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ThreadedCall(Generic[T]):
    """One call; who waits for it decides how long."""

    def __init__(self, call: Callable[[], T], name: str) -> None:
        """Begin it."""
        self._call = call
        self._results: list[T] = []
        self.error: BaseException | None = None
        """What it has raised."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:
            self.error = error

    def ended(self) -> bool:
        """Return whether it has ended."""
        return not self._thread.is_alive()

    def ended_by(self, end: float) -> bool:
        """Wait until a time (``time.monotonic``) at most; return whether it has ended."""
        self._thread.join(max(0.0, end - time.monotonic()))
        return self.ended()

    def result(self) -> T:
        """Return what the call, which has ended, returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self._results[0]
