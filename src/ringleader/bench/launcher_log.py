"""The log of a job's launcher on a cluster, fed to a meter: one stream for all ranks. Pure.

Reports of ``ringleader.progress`` are lines of that log (see ``ranks.training_progress``); every other line
counts as printed by rank 0, which is enough for rates that scripts print.
"""

from __future__ import annotations

import json
import re
from typing import Any, Protocol

from ringleader.agents.training_progress import LOG_MARK

_REPORT = re.compile(rf"{LOG_MARK} ([0-9]{{1,7}}) (\{{.*\}})\s*$")
LONGEST_LINE = 1 << 16
"""Bytes of a line that are kept: a log without an end of line must not fill our memory."""


class Listener(Protocol):
    """The part of a meter that is needed here."""

    def output(self, rank: int, stream: str, line: bytes) -> None: ...
    def report(self, rank: int, message: dict[str, Any]) -> None: ...


class LauncherLog:
    """Cuts a log into lines and tells each to a listener."""

    def __init__(self, listener: Listener, ranks: int) -> None:
        """``ranks``: of the job; reports of others are not believed."""
        self._listener, self._ranks = listener, ranks
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        self._rest = rest[:LONGEST_LINE]

    def end(self) -> None:
        """Take what is left as a line."""
        if self._rest:
            self._line(self._rest)
        self._rest = b""

    def _line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        found = report_in(text)
        if found is None:
            self._listener.output(0, "stdout", line + b"\n")
        elif found[0] < self._ranks:
            self._listener.report(*found)


def report_in(text: str) -> tuple[int, dict[str, Any]] | None:
    """Return (rank, report) of a line, whatever mpirun or an unfinished line of the script put before it."""
    match = _REPORT.search(text)
    if match is None:
        return None
    try:
        message = json.loads(match[2])
    except (ValueError, RecursionError):
        return None
    return (int(match[1]), message) if isinstance(message, dict) else None
