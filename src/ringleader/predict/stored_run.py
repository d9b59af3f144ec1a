"""A run that ``ringleader scale`` kept → what is known of the job. Pure."""

from __future__ import annotations

import statistics

from ringleader.errors import Fault, RequestError
from ringleader.predict.models import Model
from ringleader.predict.observation import Observation
from ringleader.predict.profile import Profile
from ringleader.predict.profile_document import MeasuredJob, segments
from ringleader.scaling import Point, Run


def from_run(
    run: Run, source: str, *, size: float | None, batch: float | None, layers_of: Model | None
) -> MeasuredJob:
    """Return what a run tells. RequestError with all that it lacks.

    ``size``: bytes of the gradients; ``batch``: samples of a step, where the run did not tell its steps.
    """
    faults = []
    one = next((point for point in run.points if point.ranks == 1 and point.samples), None)
    if one is None:
        hint = "ringleader scale --grid 1x1,…"
        faults.append(Fault(where=source, what="has no sample of one rank", hint=hint))
    if run.strong:
        what = "is strong scaling: a rank's batch is not the same at every size"
        faults.append(Fault(where=source, what=what, hint="measure it without --strong"))
    if layers_of is None and size is None:
        hint = "--gradients BYTES, or --model NAME"
        faults.append(Fault(where=source, what="does not say how many bytes are exchanged", hint=hint))
    steps = [s.step_seconds for s in one.samples if s.step_seconds] if one else []
    if one is not None and not steps and batch is None:
        hint = "--batch N: samples of a step of one rank"
        faults.append(Fault(where=source, what="does not tell the time of a step", hint=hint))
    if faults or one is None:
        raise RequestError(faults)
    alone = statistics.median(sample.rate for sample in one.samples)
    step = statistics.median(steps) if steps else (batch or 0.0) / alone
    profile = Profile(
        name=run.name,
        batch=alone * step,
        before=step / 3,
        segments=segments([], size, 2 / 3 * step, layers_of),
        unit=run.unit,
        source=source,
    )
    others = [point for point in run.points if point.ranks > 1 and point.samples]
    points = [Observation(ranks=1, rate=alone, per_host=1)] if others else []
    points += [_observation(point, alone) for point in others]
    last = max(others, key=lambda point: point.ranks, default=None)
    return MeasuredJob(
        profile=profile,
        points=tuple(points),
        sharing=_sharing(last, alone) if last else 1.0,
        per_host=last.slots if last else 0,
    )


def _observation(point: Point, alone: float) -> Observation:
    rate = statistics.median(sample.rate for sample in point.samples)
    told = [
        (s.exchange_seconds / s.step_seconds, s.waiting_seconds / s.step_seconds)
        for s in point.samples
        if s.step_seconds and s.exchange_seconds is not None and s.waiting_seconds is not None
    ]
    return Observation(
        ranks=point.ranks,
        rate=rate,
        per_host=point.slots,
        sharing=_sharing(point, alone),
        exposed=statistics.median(exchange for exchange, _waiting in told) if told else None,
        waiting=statistics.median(waiting for _exchange, waiting in told) if told else None,
    )


def _sharing(point: Point, alone: float) -> float:
    """What uncoupled ranks reach in parts of one rank's rate; 1 where they were not measured."""
    if not point.uncoupled:
        return 1.0
    return min(1.0, statistics.median(sample.rate for sample in point.uncoupled) / point.ranks / alone)
