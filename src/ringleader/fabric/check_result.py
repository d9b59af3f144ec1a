"""What one check of a host, of several hosts, of a cluster or of an image found. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from functools import partial


class Verdict(StrEnum):
    """What a check says, worst first."""

    FAIL = "fail"
    """Jobs will not work, or not over the network they were meant for."""
    WARN = "warn"
    """It may fail, or be slow without a message."""
    SKIP = "skip"
    """It could not be judged here, or there is nothing to judge."""
    PASS = "pass"


BAD = (Verdict.FAIL, Verdict.WARN)


@dataclass(frozen=True)
class CheckResult:
    """One verdict."""

    seen: str
    """What was found, one sentence without a full stop; of a skip, the reason."""
    _: KW_ONLY
    verdict: Verdict
    id: str = ""
    """Stable name of the check: ``port.state``; empty until the check fills it in."""
    expected: str = ""
    """What it was compared with; empty where the check only reports."""
    remedy: str = ""
    """What to do; empty where nothing is to be done."""
    subject: str = ""
    """The device, interface or variable that was judged: ``mlx5_0 port 1``; empty: the whole host."""
    hosts: tuple[str, ...] = ()
    """Hosts of which this is said; empty: the only one, or all."""
    cause: str = ""
    """Name of the result that this one follows from: ``port.phys mlx5_0 port 1``; empty: from none."""

    @property
    def is_bad(self) -> bool:
        """Whether it is a failure or a warning."""
        return self.verdict in BAD

    @property
    def name(self) -> str:
        """The check and its subject: ``port.state mlx5_0 port 1``."""
        return f"{self.id} {self.subject}".rstrip()


passed = partial(CheckResult, verdict=Verdict.PASS)
"""Return that all is well with one subject, or with all of them."""
warned = partial(CheckResult, verdict=Verdict.WARN)
"""Return a warning."""
failed = partial(CheckResult, verdict=Verdict.FAIL)
"""Return a failure."""
skipped = partial(CheckResult, verdict=Verdict.SKIP)
"""Return that it could not be judged, with the reason."""


def named(id: str, results: Iterable[CheckResult]) -> list[CheckResult]:
    """Return results as those of one check."""
    return [replace(one, id=id) for one in results]


def unless(
    bad: Iterable[CheckResult], well: str, *, known: object = True, unknown: str = ""
) -> list[CheckResult]:
    """Return what is bad; where nothing is, one pass with ``well``; a skip where nothing is ``known``."""
    found = list(bad)
    return found or [passed(well)] if known else [*found, skipped(unknown)]


def together(bad: Iterable[CheckResult], count: int) -> list[CheckResult]:
    """Return what is bad, as one result where all of ``count`` subjects are bad alike."""
    found = list(bad)
    if len(found) == count > 1 and len({(one.seen, one.expected) for one in found}) == 1:
        return [replace(found[0], subject="", seen=f"{found[0].seen} on all {count}")]
    return found


def listed(words: Iterable[object], most: int = 4, comma: str = ", ") -> str:
    """Return ``h1, h2, h3, h4 and 3 more``: words with commas, and the number of those left out."""
    texts = [str(word) for word in words]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return comma.join(texts[:most]) + more
