"""Words that several messages on a job share. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterable


def listed(words: Iterable[object], most: int = 8) -> str:
    """Return words with commas between them, with dots where there are too many."""
    texts = [str(word) for word in words]
    return ", ".join(texts[:most]) + (", …" if len(texts) > most else "")


def ranks_named(ranks: Iterable[int]) -> str:
    """Return ``rank 3`` or ``ranks 0, 1, 2``."""
    found = list(ranks)
    return f"rank{'s' if len(found) > 1 else ''} {listed(found)}"


def signal_name(number: int) -> str:
    """Return ``SIGTERM``; of a real-time signal, which has no name, ``signal 40``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
