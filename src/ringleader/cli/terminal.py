"""What a person at the terminal sees of a job: the ranks' lines, progress, warnings, and how it ended."""

from __future__ import annotations

import signal
import sys
from typing import Any, BinaryIO

from ringleader.launch.outcome import Outcome
from ringleader.launch.output import Prefixed

_CLEAR = b"\r\x1b[K"


class Terminal:
    """Told by the launcher what happens. Ranks' output goes where they sent it, ours to standard error."""

    def __init__(
        self, *, stdout: BinaryIO, stderr: BinaryIO, is_tty: bool, prefix: bool = True, quiet: bool = False
    ) -> None:
        """``is_tty``: standard error is a terminal, which gets a line of progress."""
        # A prefix is as wide as its rank: how many ranks there will be is not known yet.
        self._lines = Prefixed(stdout, stderr, size=1, prefix=prefix)
        self._stderr = stderr
        self._is_tty = is_tty
        self._quiet = quiet
        self._in_progress = False

    def output(self, rank: int, stream: str, line: bytes) -> None:
        """Show a rank's line."""
        if not self._quiet:
            self._end_progress()
            self._lines.line(rank, stream, line)

    def report(self, rank: int, message: dict[str, Any]) -> None:
        """Ignore what ranks report: it is for those who measure."""

    def progress(self, text: str) -> None:
        """Show how far the start has come, on a line that the next text overwrites."""
        if self._is_tty:
            self._end_progress()
            if text:
                self._write(f"ringleader: {text}".encode(errors="replace"))
                self._in_progress = True

    def warning(self, text: str) -> None:
        """Show something the user should know although the job goes on."""
        self._end_progress()
        self._lines.finish()
        self._write(f"ringleader: {text}\n".encode(errors="replace"))

    def finish(self, outcome: Outcome | None) -> None:
        """Leave the terminal on a new line and say how the job ended; a good end is silent."""
        self._end_progress()
        self._lines.finish()
        if outcome is not None and outcome.exit_code:
            self._write((last_words(outcome) + "\n").encode(errors="replace"))

    def _end_progress(self) -> None:
        if self._in_progress:
            self._write(_CLEAR)
            self._in_progress = False

    def _write(self, data: bytes) -> None:
        self._stderr.write(data)
        self._stderr.flush()


def terminal(*, prefix: bool, quiet: bool) -> Terminal:
    """Return a listener on this process's own streams."""
    return Terminal(
        stdout=sys.stdout.buffer,
        stderr=sys.stderr.buffer,
        is_tty=sys.stderr.isatty(),
        prefix=prefix,
        quiet=quiet,
    )


def last_words(outcome: Outcome) -> str:
    """Return what is shown last of a job that failed: the first failure in time, and whose the code is."""
    lines = [f"ringleader: {outcome.reason}"] if outcome.reason else []
    failure = outcome.first_failure
    if failure is not None and failure.log:
        lines.append(f"    log: {failure.log}")
    if failure is not None and failure.signal == signal.SIGKILL:
        lines.append("    → where nobody sent it, the kernel did for lack of memory: see dmesg")
    lines.append(f"ringleader: exit code {outcome.exit_code} ({outcome.whose})")
    return "\n".join(lines)
