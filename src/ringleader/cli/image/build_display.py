"""How far a build has come, for the person who waits: a running line, or a line for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from ringleader.images.build_progress import Step


class Shown:
    """Shows steps and elapsed time on a stream."""

    def __init__(self, *, stream: TextIO, is_tty: bool, width: int = 110) -> None:
        """``is_tty``: the line is overwritten by the next one, and its clock runs."""
        self._stream = stream
        self._is_tty = is_tty
        self._width = width
        self._now = ""
        self._second = -1

    def step(self, step: Step, seconds: float) -> None:
        """Show a step that begins."""
        self._now = " ".join(str(step).split())
        self._show(seconds)

    def passing(self, seconds: float) -> None:
        """Let the clock run."""
        if self._is_tty and int(seconds) != self._second:
            self._show(seconds)

    def say(self, text: str) -> None:
        """Show a sentence."""
        self._clear()
        self._stream.write(f"ringleader: {text}\n")
        self._stream.flush()

    def finish(self) -> None:
        """Leave an empty line behind."""
        self._clear()
        self._stream.flush()

    def _show(self, seconds: float) -> None:
        self._second = int(seconds)
        whole = f"[{clock(seconds)}] {self._now or 'the builder starts'}"
        line = whole if len(whole) <= self._width else whole[: self._width - 1] + "…"
        self._clear()
        self._stream.write(line if self._is_tty else f"{line}\n")
        self._stream.flush()

    def _clear(self) -> None:
        if self._is_tty:
            self._stream.write("\r\033[K")


def clock(seconds: float) -> str:
    """Return a duration as ``m:ss``."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
