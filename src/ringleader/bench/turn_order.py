"""The runs of a scaling run in their order, and those that are left of one that was interrupted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringleader.bench.grid import Size
from ringleader.scaling import Run


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One run among those of a scaling run."""

    size: Size
    repetition: int
    uncoupled: bool

    def __str__(self) -> str:
        kind = "uncoupled" if self.uncoupled else "coupled"
        return f"{self.size} {kind}, repetition {self.repetition + 1}"


def turns(grid: Sequence[Size], repeats: int, *, uncoupled: bool) -> tuple[Turn, ...]:
    """Return all runs in their order.

    Every size has its turn in each repetition, and every second repetition goes backwards, so that a
    machine that slows down or speeds up over the minutes treats all sizes alike. The uncoupled run of a
    size is next to its coupled one; one rank has nothing to be uncoupled from.
    """
    order = []
    for repetition in range(repeats):
        forward = []
        for size in grid:
            forward.append(Turn(size=size, repetition=repetition, uncoupled=False))
            if uncoupled and size.ranks > 1:
                forward.append(Turn(size=size, repetition=repetition, uncoupled=True))
        order += forward if repetition % 2 == 0 else forward[::-1]
    return tuple(order)


def turns_left(order: Sequence[Turn], stored: Run | None) -> tuple[Turn, ...]:
    """Return the runs that ``stored`` lacks, in their order; all of them where nothing is stored."""
    done: dict[tuple[Size, bool], int] = {}
    for point in () if stored is None else stored.points:
        size = Size(hosts=point.hosts, slots=point.slots)
        done[size, False], done[size, True] = len(point.samples), len(point.uncoupled)
    return tuple(turn for turn in order if turn.repetition >= done.get((turn.size, turn.uncoupled), 0))
