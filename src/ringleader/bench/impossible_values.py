"""Values of a stored run that have the right type and still cannot be: no rank, no time. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ringleader.bench.turn_order import IN_STEP_CHOICES
from ringleader.errors import Fault
from ringleader.measurements.collective import OPERATIONS, CollectiveRun
from ringleader.measurements.elastic import ElasticRun
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.run_kinds import AnyRun
from ringleader.measurements.training import PARTS, Arm, TrainingRun
from ringleader.scaling import Run


def impossible_values(run: AnyRun, source: str) -> list[Fault]:
    """Return a fault for each, with the place in the document."""
    if isinstance(run, Run):
        found = _of_scaling(run)
    elif isinstance(run, CollectiveRun):
        found = _of_collective(run)
    elif isinstance(run, PointToPointRun):
        found = _of_pairs(run)
    elif isinstance(run, ElasticRun):
        found = _of_elastic(run)
    else:
        found = _of_training(run)
    return [Fault(where=f"{source}: {place}", what=what) for place, what in found]


def _of_scaling(run: Run) -> Iterator[tuple[str, str]]:
    names = [point.name for point in run.points]
    if len(set(names)) < len(names):
        yield "points", f"the same size is there twice: {', '.join(names)}"
    if not re.fullmatch(r"[1-9][0-9]{0,5}x[1-9][0-9]{0,5}", run.baseline):
        yield "baseline", f"{run.baseline!r:.40} is not hosts x slots"
    if run.in_step not in IN_STEP_CHOICES:
        yield "in_step", f"{run.in_step!r:.40} is not one of {', '.join(IN_STEP_CHOICES)}"
    if run.global_batch is not None and run.global_batch < 1:
        yield "global_batch", f"{run.global_batch} samples cannot be"
    for index, point in enumerate(run.points):
        if point.hosts < 1 or point.slots < 1:
            yield f"points[{index}]", f"{point.name} has no rank"
        kinds = (("samples", point.samples), ("uncoupled", point.uncoupled), ("in_step", point.in_step))
        for kind, samples in kinds:
            for number, sample in enumerate(samples):
                place = f"points[{index}].{kind}[{number}]"
                yield from _not_positive(f"{place}.rate", sample.rate, "rate")
                for name in ("step_seconds", "exchange_seconds", "waiting_seconds", "seconds"):
                    if (getattr(sample, name) or 0.0) < 0:
                        yield f"{place}.{name}", f"{getattr(sample, name)} is no time: it is below 0"


def _of_elastic(run: ElasticRun) -> Iterator[tuple[str, str]]:
    for number, event in enumerate(run.events):
        for name in ("at", "seconds"):
            if getattr(event, name) < 0:
                yield f"events[{number}].{name}", f"{getattr(event, name)} is no time: it is below 0"


def _of_collective(run: CollectiveRun) -> Iterator[tuple[str, str]]:
    if run.ranks < 1:
        yield "ranks", f"{run.ranks} ranks cannot be"
    if run.operation not in OPERATIONS:
        yield "operation", f"{run.operation!r:.40} is not one of {', '.join(OPERATIONS)}"
    yield from _not_positive("line_rate", run.line_rate, "rate")
    for number, series in enumerate(run.series):
        for index, result in enumerate(series.results):
            place = f"series[{number}].results[{index}]"
            if result.size < 0:
                yield f"{place}.size", f"{result.size} bytes cannot be"
            for side, timing in (("out_of_place", result.out_of_place), ("in_place", result.in_place)):
                if timing is not None:
                    for name in ("seconds", "low", "high"):
                        yield from _not_positive(f"{place}.{side}.{name}", getattr(timing, name), "time")


def _of_pairs(run: PointToPointRun) -> Iterator[tuple[str, str]]:
    count = len(run.places)
    yield from _not_positive("line_rate", run.line_rate, "rate")
    for name, pairs in (("transfers", run.transfers), ("silences", run.silences)):
        for index, pair in enumerate(pairs):
            for end in ("source", "target"):
                if not 0 <= getattr(pair, end) < count:
                    what = f"{getattr(pair, end)} is not the number of one of {count} places"
                    yield f"{name}[{index}].{end}", what
    for index, transfer in enumerate(run.transfers):
        if transfer.size < 0:
            yield f"transfers[{index}].size", f"{transfer.size} bytes cannot be"
        for field in ("latency", "latency_low", "latency_p99"):
            yield from _not_positive(f"transfers[{index}].{field}", getattr(transfer, field), "time")
        for field in ("rate", "rate_low", "rate_high", "both_ways_rate"):
            yield from _not_positive(f"transfers[{index}].{field}", getattr(transfer, field), "rate")


def _of_training(run: TrainingRun) -> Iterator[tuple[str, str]]:
    if run.ranks < 1:
        yield "ranks", f"{run.ranks} ranks cannot be"
    every = {f"arms[{number}]": arm for number, arm in enumerate(run.arms)}
    for place, arm in every.items() if run.alone is None else [*every.items(), ("alone", run.alone)]:
        yield from _of_arm(place, arm)


def _of_arm(place: str, arm: Arm) -> Iterator[tuple[str, str]]:
    for name, values, what in (("rates", arm.rates, "rate"), ("step_seconds", arm.step_seconds, "time")):
        for index, value in enumerate(values):
            yield from _not_positive(f"{place}.{name}[{index}]", value, what)
    splits = {"split": arm.split} | {f"splits[{at}]": one for at, one in enumerate(arm.splits)}
    for name, split in splits.items():
        for part in PARTS if split is not None else ():
            if getattr(split, part) < 0:
                yield f"{place}.{name}.{part}", f"{getattr(split, part)} s cannot be"


def _not_positive(place: str, value: float | None, noun: str) -> Iterator[tuple[str, str]]:
    if value is not None and not value > 0:
        yield place, f"{value} is no {noun}: it must be above 0"
