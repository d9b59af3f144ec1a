"""A job's predicted speed-ups, as they are drawn beside the measured ones. Values only.

`predict` computes them and `report` draws them; neither imports the other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PredictedSize:
    """One size."""

    hosts: int
    ranks: int
    speedup: float
    """Against one rank."""
    low: float
    """95% interval of the speed-up."""
    high: float
    measured: bool = False
    """True where this size was measured, so that the prediction has seen it."""


@dataclass(frozen=True, kw_only=True)
class PredictionCurve:
    """Predicted speed-ups of a scaling run, up to four times its largest size."""

    sizes: tuple[PredictedSize, ...] = ()
    """By rising number of ranks; empty: nothing can be predicted."""
    reason: str = ""
    """Why there are no sizes, or why there are none beyond the measured ones; empty: there are."""
