"""Rates of a collective, size by size, and which of them is its best. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.measurements.collective import (
    CollectiveResult,
    CollectiveRun,
    CollectiveSeries,
    Timing,
    bus_factor,
    bus_limit,
)

ABOVE_LINE = 1.05
"""So many times the line's busbw is a burst; below it is an error of measurement."""


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """What one size reached on one side (out of place, in place); bytes per second."""

    seconds: float
    algbw: float
    busbw: float
    busbw_low: float | None
    """Of the slowest batch of iterations."""
    busbw_high: float | None
    wrong: int | None


def bandwidth(run: CollectiveRun, result: CollectiveResult, timing: Timing) -> Bandwidth:
    """Return the rates of a timing."""
    factor = bus_factor(run.operation, run.ranks) * result.size
    return Bandwidth(
        seconds=timing.seconds,
        algbw=result.size / timing.seconds,
        busbw=factor / timing.seconds,
        busbw_low=None if timing.high is None else factor / timing.high,
        busbw_high=None if timing.low is None else factor / timing.low,
        wrong=timing.wrong,
    )


def shown_timing(result: CollectiveResult) -> Timing | None:
    """Return the one that plots and sentences are about: out of place where it was measured."""
    return result.out_of_place or result.in_place


def curve(run: CollectiveRun, series: CollectiveSeries) -> list[tuple[int, Bandwidth]]:
    """Return (size, what it reached) by rising size."""
    found = [(result.size, result, shown_timing(result)) for result in series.results]
    points = [(size, bandwidth(run, result, timing)) for size, result, timing in found if timing is not None]
    return sorted(points, key=lambda point: point[0])


def bursts(points: list[tuple[int, Bandwidth]], limit: float | None) -> list[int]:
    """Return the sizes that were faster than the line allows while a larger one was not.

    Buffers took those messages, so they are no one's best. ``limit``: as of `limit_of`.
    """
    if limit is None:
        return []
    kept = [size for size, one in points if one.busbw <= ABOVE_LINE * limit]
    return [size for size, one in points if one.busbw > ABOVE_LINE * limit and size < max(kept, default=0)]


def peak(points: list[tuple[int, Bandwidth]], limit: float | None) -> tuple[int, Bandwidth]:
    """Return the size with the highest busbw, but for bursts."""
    left_out = bursts(points, limit)
    return max((point for point in points if point[0] not in left_out), key=lambda point: point[1].busbw)


def limit_of(run: CollectiveRun) -> float | None:
    """Return the busbw that the line allows, bytes per second; ``None`` where it is not known."""
    if run.line_rate is None:
        return None
    return bus_limit(run.operation, run.ranks, run.per_host, run.line_rate)
