"""How far a build has come, for the person who waits: a running line, or a line for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from ringleader.cli.terminal_progress import ProgressLine

if TYPE_CHECKING:
    from ringleader.images.build_progress import Step


class BuildDisplay:
    """Shows steps and elapsed time on a stream."""

    def __init__(self, *, stream: TextIO, is_tty: bool, width: int = 110) -> None:
        """``is_tty``: the line is overwritten by the next one, and its clock runs."""
        self._stream, self._is_tty, self._width = stream, is_tty, width
        self._line = ProgressLine(prefix="", is_tty=is_tty, write=self._write, width=width + 1)
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
        self._line.keep(f"ringleader: {text}")

    def finish(self) -> None:
        """Leave an empty line behind."""
        self._line.clear()

    def _show(self, seconds: float) -> None:
        self._second = int(seconds)
        whole = f"[{clock(seconds)}] {self._now or 'the builder starts'}"
        text = whole if len(whole) <= self._width else whole[: self._width - 1] + "…"
        (self._line.show if self._is_tty else self._line.keep)(text)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def clock(seconds: float) -> str:
    """Return a duration as ``m:ss``."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
