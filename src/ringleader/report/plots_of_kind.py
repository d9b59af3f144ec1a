"""Which module draws which kind of run. Needs matplotlib."""

from __future__ import annotations

from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.elastic import ElasticRun
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.prediction_curve import PredictionCurve
from ringleader.measurements.run_kinds import AnyRun
from ringleader.report import collective_plots, pair_heat_map, training_plots
from ringleader.report import plots as scaling_plots
from ringleader.report.drawing import Plot
from ringleader.scaling import Run


def plots(run: AnyRun, prediction: PredictionCurve | None = None) -> list[Plot]:
    """Draw what a run has; ``prediction`` counts for scaling runs."""
    if isinstance(run, Run):
        return scaling_plots.plots(run, prediction)
    if isinstance(run, CollectiveRun):
        return collective_plots.plots(run)
    if isinstance(run, PointToPointRun):
        return pair_heat_map.plots(run)
    if isinstance(run, ElasticRun):
        return []  # its table is the timeline
    return training_plots.plots(run)
