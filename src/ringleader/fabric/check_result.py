"""What one check of a host, of several hosts or of a cluster came to. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a check says, worst first."""

    FAIL = "fail"
    """Jobs will not work, or not by the wire they were meant for."""
    WARN = "warn"
    """It may fail, or be slow without a word."""
    SKIP = "skip"
    """It could not be judged here, or there is nothing to judge."""
    PASS = "pass"


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """One verdict."""

    id: str
    """Stable name of the check: ``port.state``."""
    verdict: Verdict
    seen: str
    """What was found, one sentence without a full stop; of a skip, the reason."""
    expected: str = ""
    """What it was held against; empty where the check only reports."""
    remedy: str = ""
    """What to do; empty where nothing is to be done."""
    subject: str = ""
    """The device, interface or variable that was judged: ``mlx5_0 port 1``; empty: the whole host."""
    hosts: tuple[str, ...] = ()
    """Hosts of which this is said; empty: the only one, or all."""


def listed(words: Iterable[object], most: int = 4) -> str:
    """Return ``h1, h2, h3, h4 and 3 more``: words with commas, and the number of those left out."""
    texts = [str(word) for word in words]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
