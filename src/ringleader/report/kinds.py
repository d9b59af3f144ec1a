"""The kinds of run that a report shows, and what is said, written as JSON and drawn of each.

What a kind of run holds and what of it can be compared is in its class (`scaling.StoredRun`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringleader.measurements.prediction_curve import PredictionCurve
from ringleader.measurements.run_kinds import AnyRun
from ringleader.report import collective, elastic, pair_map, pairs, scaling, scaling_plots, training
from ringleader.report.drawing import Plot
from ringleader.report.summary import Summary


@dataclass(frozen=True, kw_only=True)
class KindOfRun:
    """How runs of one kind are shown."""

    summary: Callable[[Any], Summary]
    """In words and tables."""
    document: Callable[[Any], dict[str, Any]]
    """Its results as plain JSON values."""
    plots: Callable[[Any], list[Plot]]
    """Needs matplotlib."""


KINDS = {
    "scaling": KindOfRun(summary=scaling.summary, document=scaling.document, plots=scaling_plots.plots),
    "collective": KindOfRun(summary=collective.summary, document=collective.document, plots=collective.plots),
    "point-to-point": KindOfRun(summary=pairs.summary, document=pairs.document, plots=pair_map.plots),
    "training": KindOfRun(summary=training.summary, document=training.document, plots=training.plots),
    # Of an elastic job the table is the timeline.
    "elastic": KindOfRun(summary=elastic.summary, document=elastic.document, plots=lambda run: []),
}


def summary(run: AnyRun) -> Summary:
    """Put any run into words and tables."""
    return KINDS[run.kind].summary(run)


def document(run: AnyRun) -> dict[str, Any]:
    """Return a run's results as plain JSON values: rates per second, times in seconds, ratios as such."""
    return {"kind": run.kind, **KINDS[run.kind].document(run)}


def plots(run: AnyRun, prediction: PredictionCurve | None = None) -> list[Plot]:
    """Draw what a run has; ``prediction`` is of a scaling run."""
    if prediction is not None:
        return scaling_plots.plots(run, prediction)
    return KINDS[run.kind].plots(run)
