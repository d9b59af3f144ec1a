"""Bytes between the rank's pipes and the launcher's connection, with back-pressure in both directions."""

from __future__ import annotations

import os
import select

from ringleader.agents import protocol
from ringleader.agents.light_imports import Any, suppress
from ringleader.agents.protocol import LauncherConnection

FULL = 1024 * 1024
"""Bytes waiting for the launcher above which the rank's output is not read any more."""
REPORT_LINE = 1024 * 1024
"""Bytes of a report line at most; a longer one is nobody's protocol and is dropped."""


class RankPipes:
    """The rank's standard streams and its report pipe, seen from our side."""

    def __init__(self, launcher: LauncherConnection) -> None:
        """Begin without any pipe: they are made when the rank starts."""
        self._launcher = launcher
        self._kinds: dict[int, int] = {}
        self._report = -1
        self._report_buffer = b""
        self.failing: list[dict[str, Any]] = []
        """Words of Pythons whose script an exception has left; whoever takes them, takes them away."""
        self._input = -1
        self._input_buffer = bytearray()
        self._input_ends = False
        self._far: tuple[int, ...] = ()
        self._room = FULL

    def allow(self, size: int) -> None:
        """Send this many more bytes of output: whoever reads them has caught up."""
        self._room += size

    @property
    def held(self) -> bool:
        """True while output may wait in the pipes because nobody takes it."""
        return self._room <= 0 or self._launcher.pending > 0

    def make(self, *, with_input: bool, window: int) -> tuple[int, int, int, int]:
        """Make the pipes and return the rank's ends: stdin, stdout, stderr, report.

        ``window``: bytes of output that may be sent before ``allow`` grants more.
        """
        self._room = window
        stdout, stdout_far = os.pipe()
        stderr, stderr_far = os.pipe()
        self._report, report_far = os.pipe()
        self._kinds = {stdout: protocol.STDOUT, stderr: protocol.STDERR}
        if with_input:
            stdin_far, self._input = os.pipe()
            os.set_blocking(self._input, False)
            self._launcher.say(do="more_input")
        else:
            stdin_far = os.open(os.devnull, os.O_RDONLY)
        for fd in (stdout, stderr, self._report):
            os.set_blocking(fd, False)
        self._far = (stdin_far, stdout_far, stderr_far, report_far)
        return self._far

    def close_far_ends(self) -> None:
        """Close the rank's ends on our side, once the rank has them."""
        for fd in self._far:
            os.close(fd)
        self._far = ()

    @property
    def drained(self) -> bool:
        """True when everybody who could write has closed the pipes and all of it is on its way."""
        return not self._kinds and self._report < 0

    def interests(self) -> list[tuple[int, int]]:
        """Return what to poll for: output only while the launcher keeps up."""
        wanted = []
        if self._launcher.pending < FULL:
            outputs = self._kinds if self._room > 0 else ()
            wanted = [(fd, select.POLLIN) for fd in (*outputs, self._report) if fd >= 0]
        if self._input >= 0:
            wanted.append((self._input, select.POLLOUT if self._input_buffer else 0))
        return wanted

    def serve(self, fd: int, events: int) -> None:
        """Move bytes of a pipe on which something happened."""
        if fd == self._input and events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            self._close_input()  # the rank has closed its standard input
        elif fd in self._kinds:
            data = self._read(fd)
            if data:
                self._room -= len(data)
                self._launcher.add(protocol.frame(self._kinds[fd], data))
            elif data is not None:
                del self._kinds[fd]
                os.close(fd)
        elif fd == self._report:
            self._reports()
        elif fd == self._input:
            self._write_input()

    @staticmethod
    def _read(fd: int) -> bytes | None:
        """Return bytes, ``b""`` at the end, ``None`` when there is nothing now."""
        try:
            return os.read(fd, 65536)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def read_reports(self) -> None:
        """Take what the rank wrote to its report pipe so far."""
        while self._report >= 0 and self._reports():
            pass

    def _reports(self) -> bool:
        """Take one piece of the report pipe; say whether there was one."""
        data = self._read(self._report)
        if data is None:
            return False
        if not data:
            os.close(self._report)
            self._report = -1
            return False
        *lines, self._report_buffer = (self._report_buffer + data).split(b"\n")
        if len(self._report_buffer) > REPORT_LINE:
            self._report_buffer = b""
        for line in lines:
            with suppress(protocol.ProtocolError):
                words = protocol.read_message(line)  # what is not JSON object goes no further
                if words.get("kind") == "failing":
                    self.failing.append(words)
                    continue
                self._launcher.add(protocol.frame(protocol.MESSAGE, b'{"do":"report","report":%b}' % line))
        return True

    def give_input(self, data: bytes) -> None:
        """Take bytes for the rank's standard input."""
        if self._input >= 0:
            self._input_buffer += data
            self._write_input()

    def end_input(self) -> None:
        """Close the rank's standard input once everything was written."""
        self._input_ends = True
        if self._input >= 0:
            self._write_input()

    def _write_input(self) -> None:
        had = bool(self._input_buffer)
        try:
            while self._input_buffer:
                written = os.write(self._input, self._input_buffer[:65536])
                del self._input_buffer[:written]
        except BlockingIOError:
            return
        except OSError:  # the rank has closed its standard input
            self._close_input()
            return
        if self._input_ends:
            self._close_input()
        elif had:
            self._launcher.say(do="more_input")

    def _close_input(self) -> None:
        self._input_buffer.clear()
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    def give_up(self) -> None:
        """Close pipes that somebody else still holds open; what the rank itself wrote is through."""
        for fd in (*self._kinds, self._report):
            if fd >= 0:
                os.close(fd)
        self._kinds = {}
        self._report = -1
        self._close_input()
