"""What a person at the terminal sees of a job on a cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import BinaryIO

from ringleader.cli.terminal_progress import ProgressLine
from ringleader.launch.kubernetes.exit_status import End
from ringleader.launch.kubernetes.progress_line import Progress


class JobTerminal:
    """The launcher's log goes to standard output, everything of ours to standard error."""

    def __init__(
        self, name: str, *, stdout: BinaryIO, stderr: BinaryIO, is_tty: bool, quiet: bool = False
    ) -> None:
        """``is_tty``: standard error is a terminal, which gets a line that the next one overwrites."""
        self._name, self._stdout, self._stderr = name, stdout, stderr
        self._is_tty, self._quiet = is_tty, quiet
        self._told: tuple[str, ...] = ()
        self._line = ProgressLine(is_tty=is_tty, write=self._write)
        self._at_line_start = True
        self._held: list[bytes] | None = None

    def output(self, data: bytes) -> None:
        """Show a piece of the log."""
        if self._held is not None:
            self._held.append(data)
        elif data and not self._quiet:
            self._line.clear()
            self._stdout.write(data)
            self._stdout.flush()
            self._at_line_start = data.endswith(b"\n")

    def progress(self, progress: Progress) -> None:
        """Show how far the job has come."""
        if self._held is not None:
            return
        if self._is_tty:
            self._begin_line()
            self._line.show(f"{self._name}: {progress.text}")
        elif progress.key != self._told:
            self.say(f"{self._name}: {progress.text}")
        self._told = progress.key

    def warning(self, text: str) -> None:
        """Show something worth knowing although the job goes on."""
        self.say(text)

    def say(self, text: str) -> None:
        """Show a line that stays."""
        self._begin_line()
        self._write(f"ringleader: {text}\n")

    def finish(self, end: End | None) -> None:
        """Leave the terminal on a new line and say how the job ended; a good end is silent."""
        self._begin_line()
        if end is not None and end.exit_code:
            if end.reason:
                self.say(end.reason)
            self.say(f"exit code {end.exit_code} ({end.whose})")

    async def ask(self, question: str) -> str:
        """Show a question and return the line that is typed; what the job writes meanwhile is held back.

        Standard input must be a terminal. The empty text: it was closed.
        """
        self._begin_line()
        self._write(f"ringleader: {question} ")
        self._held = []
        try:
            return await _typed_line()
        finally:
            held, self._held = self._held, None
            for data in held:
                self.output(data)

    def _begin_line(self) -> None:
        self._line.clear()
        if not self._at_line_start:
            self._stdout.write(b"\n")
            self._stdout.flush()
            self._at_line_start = True

    def _write(self, text: str) -> None:
        self._stderr.write(text.encode(errors="replace"))
        self._stderr.flush()


def job_terminal(name: str, *, quiet: bool = False, output_to_stderr: bool = False) -> JobTerminal:
    """Return a terminal on this process's own streams."""
    return JobTerminal(
        name,
        stdout=sys.stderr.buffer if output_to_stderr else sys.stdout.buffer,
        stderr=sys.stderr.buffer,
        is_tty=sys.stderr.isatty(),
        quiet=quiet,
    )


def tell(text: str) -> None:
    """Say a line to the person at the terminal."""
    print(f"ringleader: {text}", file=sys.stderr, flush=True)


def can_ask() -> bool:
    """Say whether there is somebody to answer a question."""
    try:
        return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    except ValueError:
        return False


async def _typed_line() -> str:
    """Read a line from the terminal without blocking what else goes on."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    fd = sys.stdin.fileno()

    def read() -> None:
        try:
            data = os.read(fd, 4096)
        except OSError:  # the terminal hung up
            data = b""
        if not line.done():
            line.set_result(data.decode(errors="replace").strip())

    loop.add_reader(fd, read)
    try:
        return await line
    finally:
        loop.remove_reader(fd)
