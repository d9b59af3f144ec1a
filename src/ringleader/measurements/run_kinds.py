"""The kinds of run that are kept, and the word for each. Values only."""

from __future__ import annotations

from ringleader.measurements import collective, elastic, point_to_point, training
from ringleader.scaling import SCHEMA, Run

AnyRun = (
    Run
    | point_to_point.PointToPointRun
    | collective.CollectiveRun
    | training.TrainingRun
    | elastic.ElasticRun
)
KINDS: dict[str, tuple[type[AnyRun], int]] = {
    "scaling": (Run, SCHEMA),
    point_to_point.KIND: (point_to_point.PointToPointRun, point_to_point.SCHEMA),
    collective.KIND: (collective.CollectiveRun, collective.SCHEMA),
    training.KIND: (training.TrainingRun, training.SCHEMA),
    elastic.KIND: (elastic.ElasticRun, elastic.FORMAT),
}
"""``kind`` of a stored document → what it becomes, and the schema that is read."""


def kind_of(run: AnyRun) -> str:
    """Return the word for what a run holds."""
    return next(name for name, (of, _schema) in KINDS.items() if isinstance(run, of))
