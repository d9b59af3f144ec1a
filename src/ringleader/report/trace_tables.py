"""Where the steps of traced ranks went, as tables and sentences: for a terminal and for a run's page. Pure.

`measurements.trace_split` divides the time; `cli.analyze` prints these, `job` has them on the page of a run.
"""

from __future__ import annotations

from ringleader.measurements.trace_split import PARTS, Split
from ringleader.number_format import NONE, percent, plural, seconds
from ringleader.report.summary import Table

WORDS = {
    "compute": "computing",
    "copies": "copying GPU memory",
    "input": "waiting for its data loader",
    "idle": "outside PyTorch (Python, sleeping, other libraries)",
}
"""Part → what a rank does then."""


def headline(found: Split) -> str:
    """``2 ranks, 20 steps (20 to 39), work of the GPU``."""
    each = f", {plural(len(found.steps), 'step')}" if found.steps else ""
    steps = f" ({found.steps[0]} to {found.steps[-1]})" if len(found.steps) > 1 else ""
    return f"{plural(len(found.ranks), 'rank')}{each}{steps}, work of the {'GPU' if found.on_gpu else 'CPU'}"


def tables(found: Split) -> tuple[Table, ...]:
    """Return the time of ranks, and that of collectives where there are any."""
    parts = [part for part in PARTS if found.on_gpu or part != "copies"]
    names, steps = ("seconds", *parts, "overlapped"), len(found.steps) or 1
    times = (_times(*(getattr(one, name) for name in names), count=steps) for one in found.ranks)
    rows = [(f"rank {one.rank}", *cells) for one, cells in zip(found.ranks, times, strict=True)]
    whole, all_ranks = found.sum_of("seconds") or 0.0, found.sum_of
    shares = [NONE if (value := all_ranks(part)) is None else percent(value / (whole or 1)) for part in parts]
    over = percent((all_ranks("overlapped") or 0.0) / (whole or 1))
    ranks = Table(
        key="profile",
        title="Where the profiled steps went",
        names=("" if not found.steps else "a step", "time", *parts, "overlapped"),
        rows=(*rows, ("sum", seconds(whole), *shares, over)),
        note=f"{headline(found)}. Rows are the mean of a step; the sum is over all ranks and steps.",
    )
    both = any(one.group for one in found.collectives)
    collectives = Table(
        key="collectives",
        title="Collectives of these steps",
        names=("collective, all ranks", "count", "time", "exposed", "waiting", "overlapped"),
        rows=tuple(
            (
                f"{one.kind} ({one.group})" if both and one.group else one.kind,
                f"{one.count:,}",
                *_times(one.seconds, one.exposed, one.waiting, one.overlapped),
            )
            for one in found.collectives
        ),
    )
    return (ranks, collectives) if collectives.rows else (ranks,)


def _times(*values: float | None, count: int = 1) -> list[str]:
    """Return seconds as cells, each divided by a count; a mark where they are unknown."""
    return [NONE if value is None else seconds(value / count) for value in values]


def sentences(found: Split) -> list[str]:
    """Say for whom the others waited, and why, where that is worth a sentence."""
    if (worst := found.straggler) is None:
        return []
    part, more = found.why(worst)
    steps = len(found.steps) or 1
    last = f"rank {worst.rank} was the last to enter {worst.was_last} of {found.matched} collectives"
    lost = f"the others waited {seconds(worst.caused / steps)}{' per step' if found.steps else ''} for it"
    why = f"it spends {seconds(more / steps)} more {WORDS[part]} than the median of the others"
    return [f"{last}; {lost}", why if more > 0 else "its own work does not explain that: it waited itself"]
