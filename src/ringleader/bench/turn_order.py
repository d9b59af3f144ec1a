"""The runs of a scaling run in their order, and those that are left of one that was interrupted. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ringleader.bench.grid import Size
from ringleader.scaling import Run, too_wide


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One run among those of a scaling run."""

    size: Size
    repetition: int
    uncoupled: bool
    """Ranks that exchange nothing."""
    in_step: bool = False
    """Of those: ranks that meet where they would exchange something."""

    @property
    def kind(self) -> str:
        """What its ranks are."""
        return "in step" if self.in_step else "uncoupled" if self.uncoupled else "coupled"

    def __str__(self) -> str:
        kind = self.kind
        return f"{self.size} {kind}, repetition {self.repetition + 1}"


def in_step_sizes(which: str, grid: Sequence[Size]) -> tuple[Size, ...]:
    """Return the sizes at which ranks in step are measured; ``which`` is one of `IN_STEP_CHOICES`."""
    several = [size for size in grid if size.ranks > 1]
    if which == "largest" and several:
        return (max(several, key=lambda size: (size.ranks, size.hosts)),)
    return tuple(several) if which == "all" else ()


def turns(
    grid: Sequence[Size], repeats: int, *, uncoupled: bool, in_step: Collection[Size] = ()
) -> tuple[Turn, ...]:
    """Return all runs in their order; at the sizes ``in_step`` also those of ranks that only meet.

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
            if size in in_step and size.ranks > 1:
                forward.append(Turn(size=size, repetition=repetition, uncoupled=True, in_step=True))
        order += forward if repetition % 2 == 0 else forward[::-1]
    return tuple(order)


def further_turns(run: Run, *, spent: float, made: int) -> tuple[Turn, ...]:
    """Return one more repetition of the sizes that are `too_wide`, and of the baseline they are paired with.

    Nothing if it would end after the budget, as ``made`` runs took ``spent`` seconds. A size that is narrow
    is never repeated again, so the n-th samples of all sizes are still of one repetition.
    """
    names = too_wide(run).keys()
    points = [point for point in run.points if point.name in {*names, run.baseline}]
    if not names or run.budget is None:
        return ()
    grid = [Size(hosts=point.hosts, slots=point.slots) for point in points]
    in_step = [size for point, size in zip(points, grid, strict=True) if point.in_step]
    repeats = 1 + min(len(point.samples) for point in points)
    left = turns_left(turns(grid, repeats, uncoupled=run.uncoupled, in_step=in_step), run)
    return left if spent * (1 + len(left) / max(1, made)) <= run.budget else ()


def turns_left(order: Sequence[Turn], stored: Run | None) -> tuple[Turn, ...]:
    """Return the runs that ``stored`` lacks, in their order; all of them where nothing is stored."""
    done: dict[tuple[Size, str], int] = {}
    for point in () if stored is None else stored.points:
        size = Size(hosts=point.hosts, slots=point.slots)
        for kind, samples in point.kinds:
            done[size, kind] = len(samples)
    return tuple(turn for turn in order if turn.repetition >= done.get((turn.size, turn.kind), 0))
