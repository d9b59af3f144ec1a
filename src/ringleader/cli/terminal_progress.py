"""How far some work has come: a line that the next one overwrites; in a batch log a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

EVERY = 10.0
"""Seconds between two lines where standard error is no terminal."""
_CLEAR = "\r\033[K"


class ProgressLine:
    """Shows texts on standard error, or where ``write`` puts them."""

    def __init__(
        self,
        *,
        prefix: str = "ringleader: ",
        is_tty: bool | None = None,
        write: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        width: int | None = None,
    ) -> None:
        """``is_tty``: a terminal reads it; ``None``: look at standard error. ``width``: its columns."""
        self._prefix, self._clock, self._width = prefix, clock, width
        self._is_tty = sys.stderr.isatty() if is_tty is None else is_tty
        self._write = write or _to_standard_error
        self._is_shown, self._told, self._last = False, "", clock()

    def show(self, text: str) -> None:
        """Show how far it is. In a log: only once in a while, and only what is new."""
        if self._is_tty:
            self.clear()
            if text:
                self._write(f"{self._prefix}{text}"[: (self._width or _columns()) - 1])
                self._is_shown = True
        elif text and text != self._told and self._clock() - self._last >= EVERY:
            self.keep(text)

    def keep(self, text: str) -> None:
        """Show a line that stays."""
        self.clear()
        self._told, self._last = text, self._clock()
        self._write(f"{self._prefix}{text}\n")

    def clear(self) -> None:
        """Leave an empty line behind."""
        if self._is_shown:
            self._write(_CLEAR)
            self._is_shown = False


def _columns() -> int:
    import shutil  # takes 4 ms

    return max(20, shutil.get_terminal_size().columns)


def _to_standard_error(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
