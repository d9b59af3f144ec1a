"""What of a run can be held against another run of its kind: rates and times by name. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ringleader.fabric.byte_size import byte_size
from ringleader.measurements.collective import CollectiveRun, Timing, bus_factor
from ringleader.measurements.elastic import ElasticRun
from ringleader.measurements.point_to_point import PointToPointRun, Transfer
from ringleader.measurements.run_kinds import AnyRun, kind_of
from ringleader.measurements.training import TrainingRun
from ringleader.metrics import Spread
from ringleader.report.point_to_point_summary import pair_name
from ringleader.scaling import Run

SHORT, LEAST_ITERATIONS = 64 << 10, 3
"""Bytes of a message, and iterations, below which the extent of batches tells little."""


@dataclass(frozen=True, kw_only=True)
class ComparableRate:
    """One number of a run, and how far it varied."""

    name: str
    """``2x2``; ``ringleader, 64 MiB``; ``h1 → h2, 1 MiB, rate``."""
    unit: str
    """``images/s``, ``bytes/s``, or ``s``: of a time, the shorter is the faster."""
    spread: Spread
    samples: tuple[float, ...] = ()
    """Every repetition; empty: only the extent is known."""
    is_coarse: bool = False
    """Of a short message, or of few iterations: its batches lie far apart by nature."""

    @property
    def is_time(self) -> bool:
        """True for seconds."""
        return self.unit == "s"


def comparable_rates(run: AnyRun) -> dict[str, ComparableRate]:
    """Return all of a run's, by name."""
    if isinstance(run, Run):
        found = _of_scaling(run)
    elif isinstance(run, CollectiveRun):
        found = _of_collective(run)
    elif isinstance(run, PointToPointRun):
        found = _of_pairs(run)
    elif isinstance(run, ElasticRun):
        return {}
    else:
        found = _of_training(run)
    return {one.name: one for one in found}


def incomparable(before: AnyRun, after: AnyRun) -> str:
    """Say why two runs cannot be compared; empty where they can."""
    if kind_of(before) != kind_of(after):
        return f"a {kind_of(before)} run and a {kind_of(after)} run have no number in common"
    if isinstance(before, ElasticRun):
        return "what happened to an elastic job is no measurement"
    if isinstance(before, CollectiveRun) and isinstance(after, CollectiveRun):
        wrong = next((run.name for run in (before, after) if run.wrong), None)
        if wrong is not None:
            return f"{wrong} has wrong results (#wrong), so its rates mean nothing"
        return _unlike("operation", before.operation, after.operation) or _unlike(
            "number of ranks", str(before.ranks), str(after.ranks)
        )
    if isinstance(before, TrainingRun) and isinstance(after, TrainingRun):
        return (
            _unlike("model", before.model, after.model)
            or _unlike("unit", before.unit, after.unit)
            or _unlike("number of ranks", str(before.ranks), str(after.ranks))
        )
    return ""


def _unlike(what: str, before: str, after: str) -> str:
    return "" if before == after else f"the {what} is not the same: {before} and {after}"


def _of_scaling(run: Run) -> Iterator[ComparableRate]:
    for point in run.points:
        if point.samples:
            rates = tuple(sample.rate for sample in point.samples)
            yield ComparableRate(
                name=point.name, unit=f"{run.unit}/s", spread=Spread.of_ratios(rates), samples=rates
            )


def _of_training(run: TrainingRun) -> Iterator[ComparableRate]:
    for arm in run.arms:
        if arm.rates:
            yield ComparableRate(
                name=arm.name, unit=f"{run.unit}/s", spread=Spread.of_ratios(arm.rates), samples=arm.rates
            )


def _of_collective(run: CollectiveRun) -> Iterator[ComparableRate]:
    for series in run.series:
        for result in series.results:
            for side, timing in (("", result.out_of_place), (", in place", result.in_place)):
                if timing is not None and result.size > 0:
                    name = f"{series.implementation}, {byte_size(result.size)}{side}"
                    found = _of_timing(name, timing, bus_factor(run.operation, run.ranks) * result.size)
                    few = result.iterations is not None and result.iterations < LEAST_ITERATIONS
                    yield replace(found, is_coarse=few or result.size < SHORT)


def _of_timing(name: str, timing: Timing, moved: float) -> ComparableRate:
    """``moved``: busbw times seconds; 0 of one rank, of which only the time is left to compare."""
    count = 1 if timing.low is None or timing.high is None else 2
    low, high = timing.low or timing.seconds, timing.high or timing.seconds
    if not moved > 0:
        spread = Spread(median=timing.seconds, low=low, high=high, count=count)
        return ComparableRate(name=name, unit="s", spread=spread)
    spread = Spread(median=moved / timing.seconds, low=moved / high, high=moved / low, count=count)
    return ComparableRate(name=name, unit="bytes/s", spread=spread)


def _of_pairs(run: PointToPointRun) -> Iterator[ComparableRate]:
    for transfer in run.transfers:
        name = f"{pair_name(run, transfer)}, {byte_size(transfer.size)}"
        if transfer.rate is not None:
            yield ComparableRate(name=f"{name}, rate", unit="bytes/s", spread=_rate_spread(transfer))
        if transfer.latency is not None:
            yield ComparableRate(name=f"{name}, latency", unit="s", spread=_latency_spread(transfer))


def _rate_spread(transfer: Transfer) -> Spread:
    assert transfer.rate is not None
    if transfer.rate_low is None or transfer.rate_high is None:
        return Spread(median=transfer.rate, low=transfer.rate, high=transfer.rate, count=1)
    return Spread(median=transfer.rate, low=transfer.rate_low, high=transfer.rate_high, count=2)


def _latency_spread(transfer: Transfer) -> Spread:
    assert transfer.latency is not None
    if transfer.latency_low is None or transfer.latency_p99 is None:
        return Spread(median=transfer.latency, low=transfer.latency, high=transfer.latency, count=1)
    return Spread(median=transfer.latency, low=transfer.latency_low, high=transfer.latency_p99, count=2)
