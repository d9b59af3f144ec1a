"""What two ranks measured between them. Values only."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """From one rank to another. Bits per second."""

    rate: float
    """Of the batches the median."""
    lowest: float
    highest: float
    message_bytes: int


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Half a round trip of a small message. Seconds."""

    median: float
    lowest: float
    round_trips: int


class SilentPartnerError(Exception):
    """The partner did not answer in time."""

    def __init__(self, partner: int, during: str, seconds: float) -> None:
        """``partner``: its rank; ``during``: what was being done; ``seconds``: how long it was waited for."""
        super().__init__(f"rank {partner} did not answer within {seconds:.1f} s ({during})")
        self.partner, self.during, self.seconds = partner, during, seconds


def bandwidth_of(batches: Sequence[float], message_bytes: int) -> Bandwidth:
    """Return the result of batches (bits per second of each; at least one)."""
    return Bandwidth(
        rate=statistics.median(batches),
        lowest=min(batches),
        highest=max(batches),
        message_bytes=message_bytes,
    )


def latency_of(round_trips: Sequence[float]) -> Latency:
    """Return the result of whole round trips in seconds (at least one)."""
    return Latency(
        median=statistics.median(round_trips) / 2, lowest=min(round_trips) / 2, round_trips=len(round_trips)
    )
