"""What ranks of Ringleader's own jobs tell the launcher, and who listens to such a job.

A rank sends one JSON value with ``send``, over its report pipe. A line of that may have 1 MiB, and facts of a
host with many devices may be longer: a value goes in parts, each its own report: ``{"kind": "answer",
"name": "facts", "text": …, "last": false}``. ``JobListener`` is the launcher's side; what listeners of any
job are informed of is in ``outcome``.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ringleader.agents.training_progress import report_fd

KIND = "answer"
PART = 100_000
"""Characters of JSON in one report; escaped once more they stay far below 1 MiB."""
TAIL = 20
"""Lines of a rank that are kept: enough for a traceback's end."""
LONGEST_LINE = 500


def send(name: str, value: Any, *, environ: Mapping[str, str] | None = None) -> None:
    """Tell the launcher a value, in a rank. Raises RuntimeError where no launcher listens."""
    fd = report_fd(os.environ if environ is None else environ)
    if fd is None:
        raise RuntimeError("no launcher listens: this program is started by ringleader doctor or bench")
    for part in parts_of(name, value):
        line = json.dumps(part).encode() + b"\n"
        while line:
            line = line[os.write(fd, line) :]


def parts_of(name: str, value: Any, size: int = PART) -> list[dict[str, Any]]:
    """Return the reports that carry a value, in order."""
    text = json.dumps(value)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    last = len(pieces) - 1
    return [{"kind": KIND, "name": name, "text": one, "last": at == last} for at, one in enumerate(pieces)]


class JobListener:
    """Keeps what ranks answer, the last lines they print, and warnings; nothing is printed."""

    def __init__(
        self,
        *,
        progress: Callable[[str], None] = lambda text: None,
        answered: Callable[[int, str, Any], None] = lambda rank, name, value: None,
        printed: Callable[[int, str, str], None] = lambda rank, stream, line: None,
    ) -> None:
        """``progress`` shows how far the start has come; ``answered`` hears of each answer as it comes.

        ``printed`` hears of each line, with its rank and ``stdout`` or ``stderr``.
        """
        self.progress, self._answered, self._printed = progress, answered, printed
        self._texts: dict[tuple[int, str], list[str]] = {}
        self._tails: dict[int, deque[str]] = {}
        self.answers: dict[int, dict[str, Any]] = {}
        """Rank → name → the value that it sent."""
        self.warnings: list[str] = []
        self.warning = self.warnings.append

    def named(self, name: str) -> dict[int, Any]:
        """Return the answers of a name by rank, of those ranks that gave one."""
        return {rank: own[name] for rank, own in sorted(self.answers.items()) if name in own}

    def tail(self, rank: int) -> tuple[str, ...]:
        """Return the last lines that a rank printed."""
        return tuple(self._tails.get(rank, ()))

    def output(self, rank: int, stream: str, line: bytes) -> None:
        """Keep a rank's line."""
        text = line.decode("utf-8", "replace").rstrip("\r\n")[:LONGEST_LINE]
        self._printed(rank, stream, text)
        self._tails.setdefault(rank, deque(maxlen=TAIL)).append(text)

    def report(self, rank: int, message: dict[str, Any]) -> None:
        """Take a message of a rank's report pipe; unreadable ones and others are left out."""
        name, text = message.get("name"), message.get("text")
        if message.get("kind") != KIND or not isinstance(name, str) or not isinstance(text, str):
            return
        self._texts.setdefault((rank, name), []).append(text)
        if message.get("last") is True:
            try:
                value = json.loads("".join(self._texts.pop((rank, name))))
            except ValueError:
                return
            self.answers.setdefault(rank, {})[name] = value
            self._answered(rank, name, value)

    def flush(self) -> None:
        """Nothing waits: lines were kept when they came."""

    def waiting(self) -> int:
        """Return 0: nothing is passed on to anybody."""
        return 0
