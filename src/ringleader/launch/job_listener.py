"""Listens to a job of Ringleader's own: keeps what its ranks answer, the last lines they print, warnings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ringleader.launch.rank_answer import AnswerParts

TAIL = 20
"""Lines of a rank that are kept: enough for a traceback's end."""
LONGEST_LINE = 500


class JobListener:
    """Told by the launcher what happens; nothing is printed."""

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
        self._progress, self._answered, self._printed = progress, answered, printed
        self._parts = AnswerParts(self._keep)
        self._tails: dict[int, deque[str]] = {}
        self.answers: dict[int, dict[str, Any]] = {}
        """Rank → name → the value that it sent with ``rank_answer.send``."""
        self.warnings: list[str] = []

    def named(self, name: str) -> dict[int, Any]:
        """Return the answers of a name by rank, of those ranks that gave one."""
        return {rank: own[name] for rank, own in sorted(self.answers.items()) if name in own}

    def tail(self, rank: int) -> tuple[str, ...]:
        """Return the last lines that a rank printed."""
        return tuple(self._tails.get(rank, ()))

    def _keep(self, rank: int, name: str, value: Any) -> None:
        self.answers.setdefault(rank, {})[name] = value
        self._answered(rank, name, value)

    def output(self, rank: int, stream: str, line: bytes) -> None:
        """Keep a rank's line."""
        text = line.decode("utf-8", "replace").rstrip("\r\n")[:LONGEST_LINE]
        self._printed(rank, stream, text)
        self._tails.setdefault(rank, deque(maxlen=TAIL)).append(text)

    def report(self, rank: int, message: dict[str, Any]) -> None:
        """Take a message of a rank's report pipe."""
        self._parts.add(rank, message)

    def progress(self, text: str) -> None:
        """Pass on how far the start has come."""
        self._progress(text)

    def warning(self, text: str) -> None:
        """Keep a warning."""
        self.warnings.append(text)

    def flush(self) -> None:
        """Nothing waits: lines were kept when they came."""

    def waiting(self) -> int:
        """Return 0: nothing is passed on to anybody."""
        return 0
