"""Curves that `ringleader bench` measured → what the model uses in place of stated numbers. Pure.

Messages between two hosts become a link; an all-reduce of so many ranks becomes the cost of an exchange. For
another number of ranks n than the measured m the same bus bandwidth is taken, as nccl-tests define it, and a
latency that grows with the ring's steps:

    t_n(S) = t_m(0) · (n−1)/(m−1) + (t_m(S) − t_m(0)) · f(n)/f(m)      f(n) = 2(n−1)/n
"""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.errors import Fault, RequestError
from ringleader.measurements.collective import CollectiveRun, CollectiveSeries, bus_factor
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.predict.networks import Link, from_curve

PREFERRED = ("ringleader", "nccl")
"""Implementations of which the first that was measured is taken; else the first of all."""


@dataclass(frozen=True, kw_only=True)
class MeasuredAllReduce:
    """Seconds of an all-reduce by size."""

    ranks: int
    per_host: int
    link: Link
    """Its curve: bytes of the whole array, and seconds."""
    source: str

    def seconds(self, size: float, ranks: int) -> float:
        """Return the time among so many ranks."""
        if ranks == 1:
            return 0.0
        latency = self.link.latency
        carried = max(0.0, self.link.seconds(size) - latency)
        factor = bus_factor("allreduce", ranks) / bus_factor("allreduce", self.ranks)
        return latency * (ranks - 1) / (self.ranks - 1) + carried * factor


def link_of(run: PointToPointRun, source: str) -> Link:
    """Return what messages between two hosts meet, the slowest pair counting: a ring is as fast as it.

    Where both directions were measured at once, that counts if it is slower: members of a ring send and
    receive at once. RequestError: no two hosts, or too few sizes.
    """
    by_size: dict[int, list[float]] = {}
    hosts = [place.host for place in run.places]
    for one in run.transfers:
        took = one.latency if one.latency is not None else one.size / one.rate if one.rate else None
        if one.both_ways_rate:
            took = max(took or 0.0, 2 * one.size / one.both_ways_rate)
        if took is not None and hosts[one.source] != hosts[one.target]:
            by_size.setdefault(one.size, []).append(took)
    return _link(f"curve {source}", [(size, max(times)) for size, times in by_size.items()], source)


def all_reduce_of(run: CollectiveRun, source: str) -> MeasuredAllReduce:
    """Return the cost of an all-reduce. RequestError: another operation, one rank, or too few sizes."""
    series = _series(run)
    if run.operation != "allreduce" or run.ranks < 2 or series is None:
        what = f"measures {run.operation} of {run.ranks} ranks; an allreduce of several is needed"
        raise RequestError(Fault(where=source, what=what, hint="ringleader bench allreduce"))
    points = []
    for result in series.results:
        timing = result.in_place or result.out_of_place
        if timing is not None and result.size > 0:
            points.append((result.size, timing.seconds))
    link = _link(f"{series.implementation} of {source}", points, source)
    return MeasuredAllReduce(ranks=run.ranks, per_host=run.per_host, link=link, source=source)


def _series(run: CollectiveRun) -> CollectiveSeries | None:
    measured = {series.implementation: series for series in run.series if series.results}
    known = [measured[name] for name in PREFERRED if name in measured]
    return next(iter([*known, *measured.values()]), None)


def _link(name: str, points: list[tuple[int, float]], source: str) -> Link:
    """Return the link of measured times; a message that seems to take longer than a larger one does not.

    What disturbs a measurement makes it longer, never shorter.
    """
    rising: list[tuple[float, float]] = []
    for size, seconds in sorted(points, reverse=True):
        at_most = rising[-1][1] * (1 - 1e-9) if rising else seconds
        rising.append((float(size), min(seconds, at_most)))
    try:
        return from_curve(name, rising)
    except ValueError as error:
        raise RequestError(Fault(where=source, what=f"is no curve: {error}")) from None
