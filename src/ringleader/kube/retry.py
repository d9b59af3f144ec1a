"""How long to wait between attempts. Pure but for the dice, which are passed in."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Pauses:
    """Pauses that double up to a limit, each cut by chance so that many clients do not come at once."""

    first: float = 0.2
    """Seconds."""
    longest: float = 10.0
    """Seconds."""
    spread: float = 0.5
    """By how much of itself a pause may be shorter, from 0 to 1."""
    dice: Callable[[], float] = random.random
    """Gives numbers from 0 to 1."""

    def after(self, attempt: int) -> float:
        """Return the seconds to wait after so many attempts that failed in a row, counted from 1."""
        # Doubling stops long before numbers overflow.
        whole = min(self.longest, self.first * 2.0 ** min(attempt - 1, 60))
        return whole * (1.0 - self.spread * self.dice())
