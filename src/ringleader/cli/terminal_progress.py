"""Progress: a line, with a bar where things are counted, that the next one overwrites.

A batch log gets a line now and then of what is counted, and nothing else.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator

EVERY = 10.0
"""Seconds between two lines in a log."""
LONG = 3.0
"""Seconds after which `shown_while` shows something."""
_CLEAR = "\r\033[K"
_BAR, _LEAST_COLUMNS = 20, 60
"""Columns of a bar, and of a terminal that has room for one."""


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
        self.is_tty = sys.stderr.isatty() if is_tty is None else is_tty
        """Whether a terminal reads it."""
        self._write = write or _to_standard_error
        self._is_shown, self._told, self._last = False, "", clock()

    def show(self, text: str) -> None:
        """Show how far it is. In a log: only once in a while, and only what is new."""
        if self.is_tty:
            self.clear()
            if text:
                columns = self._width or _columns()
                text = f"{bar(text)}{text}" if columns >= _LEAST_COLUMNS else text
                self._write(f"{self._prefix}{text}"[: columns - 1])
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


def bar(text: str) -> str:
    """Return a bar for a text that counts: ``3 of 12 hosts``; empty for others."""
    counted = re.search(r"\b(\d+) of (\d+)\b", text)
    if counted is None or not 0 <= int(counted[1]) <= int(counted[2]) or counted[2] == "0":
        return ""
    done = _BAR * int(counted[1]) // int(counted[2])
    return f"[{'=' * done}{' ' * (_BAR - done)}] "


@contextlib.contextmanager
def shown_while(text: str, line: ProgressLine | None = None, *, after: float = LONG) -> Iterator[None]:
    """On a terminal, show a text with the seconds so far while the block takes longer than ``after``."""
    line = line or ProgressLine()
    if not line.is_tty:
        yield
        return
    import threading  # most commands start without it

    began, ended = time.monotonic(), threading.Event()

    def show() -> None:
        wait = after
        while not ended.wait(wait):
            wait = 1.0
            line.show(f"{text} ({time.monotonic() - began:.0f} s)")

    thread = threading.Thread(target=show, daemon=True)
    with contextlib.suppress(RuntimeError):  # a limit on threads: the work matters more
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.ident is not None:
            thread.join()
        line.clear()


def _columns() -> int:
    import shutil  # takes 4 ms

    return max(20, shutil.get_terminal_size().columns)


def _to_standard_error(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
