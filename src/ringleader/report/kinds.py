"""The kinds of run that a report shows, and what is said, written as JSON and drawn of each.

What a kind of run holds, and what of it can be compared, is in its class (`scaling.StoredRun`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ringleader.measurements.prediction_curve import PredictionCurve
from ringleader.measurements.run_kinds import AnyRun
from ringleader.report import (
    collective,
    job_plots,
    pair_map,
    pairs,
    recorded_job,
    scaling,
    scaling_plots,
    training,
)
from ringleader.report.drawing import Plot, plot_style
from ringleader.report.summary import Summary


class KindOfRun(NamedTuple):
    """How runs of one kind are shown."""

    summary: Callable[[Any], Summary]
    document: Callable[[Any], dict[str, Any]]
    plots: Callable[..., Iterable[Plot]]


KINDS = {
    "scaling": KindOfRun(scaling.summary, scaling.document, scaling_plots.plots),
    "collective": KindOfRun(collective.summary, collective.document, collective.plots),
    "point-to-point": KindOfRun(pairs.summary, pairs.document, pair_map.plots),
    "training": KindOfRun(training.summary, training.document, training.plots),
    "job": KindOfRun(recorded_job.summary, recorded_job.document, job_plots.plots),
}


def summary(run: AnyRun) -> Summary:
    """Put any run into words and tables."""
    return KINDS[run.kind].summary(run)


def document(run: AnyRun) -> dict[str, Any]:
    """Return a run's results as plain JSON values: rates per second, times in seconds, ratios as such."""
    return {"kind": run.kind, **KINDS[run.kind].document(run)}


def plots(run: AnyRun, prediction: PredictionCurve | None = None) -> list[Plot]:
    """Draw what a run has; ``prediction`` is of a scaling run. Needs matplotlib."""
    with plot_style():
        return list(KINDS[run.kind].plots(run, *([prediction] if prediction is not None else [])))
