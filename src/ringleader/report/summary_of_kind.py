"""Which module tells what of which kind of run. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.elastic import ElasticRun
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.run_kinds import AnyRun, kind_of
from ringleader.report import (
    collective_summary,
    elastic_summary,
    point_to_point_summary,
    scaling_summary,
    table,
    training_summary,
)
from ringleader.report.run_summary import RunSummary
from ringleader.scaling import Run


def summary(run: AnyRun) -> RunSummary:
    """Put any run into words and tables."""
    if isinstance(run, Run):
        return scaling_summary.summary(run)
    if isinstance(run, CollectiveRun):
        return collective_summary.summary(run)
    if isinstance(run, PointToPointRun):
        return point_to_point_summary.summary(run)
    if isinstance(run, ElasticRun):
        return elastic_summary.summary(run)
    return training_summary.summary(run)


def document(run: AnyRun) -> dict[str, Any]:
    """Return a run's results as plain JSON values: rates per second, times in seconds, ratios as such."""
    if isinstance(run, Run):
        return {"kind": kind_of(run), **table.document(run)}
    if isinstance(run, CollectiveRun):
        results = collective_summary.results(run)
    elif isinstance(run, PointToPointRun):
        results = point_to_point_summary.results(run)
    elif isinstance(run, ElasticRun):
        results = elastic_summary.results(run)
    else:
        results = training_summary.results(run)
    said = summary(run)
    words = {"headline": said.headline, "findings": list(said.findings), "cautions": list(said.cautions)}
    return {"kind": kind_of(run), **asdict(run), **words, "results": results}
