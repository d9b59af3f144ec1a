"""The kinds of run that are kept, by their words in stored documents. Values only."""

from __future__ import annotations

from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.recorded_job import JobRun
from ringleader.measurements.training import TrainingRun
from ringleader.scaling import Run

AnyRun = Run | PointToPointRun | CollectiveRun | TrainingRun | JobRun
_CLASSES: tuple[type[AnyRun], ...] = (Run, PointToPointRun, CollectiveRun, TrainingRun, JobRun)
KINDS = {one.kind: one for one in _CLASSES}
