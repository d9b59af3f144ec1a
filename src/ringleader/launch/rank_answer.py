"""What a rank of one of Ringleader's own jobs tells the launcher: one JSON value, over its report pipe.

A line of the report pipe may have 1 MiB, and facts of a host with many devices may be longer: a value goes
in parts, each a report of its own: ``{"kind": "answer", "name": "facts", "text": …, "last": false}``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from ringleader.agents.training_progress import report_fd

KIND = "answer"
PART = 100_000
"""Characters of JSON in one report; escaped once more they stay far below 1 MiB."""


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


class AnswerParts:
    """Joins the reports of ranks to values."""

    def __init__(self, answered: Callable[[int, str, Any], None]) -> None:
        """``answered(rank, name, value)`` takes each value that is complete."""
        self._answered = answered
        self._texts: dict[tuple[int, str], list[str]] = {}

    def add(self, rank: int, message: Mapping[str, Any]) -> None:
        """Take a report; what is no part of an answer, or cannot be read, is left out."""
        name, text = message.get("name"), message.get("text")
        if message.get("kind") != KIND or not isinstance(name, str) or not isinstance(text, str):
            return
        self._texts.setdefault((rank, name), []).append(text)
        if message.get("last") is True:
            try:
                value = json.loads("".join(self._texts.pop((rank, name))))
            except ValueError:
                return
            self._answered(rank, name, value)
