"""Networks and buses: by name, as specifications state them, and as `ringleader bench` measured them. Pure.

Bytes per second, seconds. The rate that counts is ``bandwidth · efficiency``. Sources of efficiencies:
headers per frame (Ethernet), what cluster acceptance tests ask of ``ib_write_bw`` (InfiniBand). Latencies of
RDMA, NVLink and PCIe are those that NCCL's own cost model has for large messages (``hwLat``, Simple protocol,
src/graph/tuning.cc); those of TCP are assumed. A number that is assumed says so in ``source``.

Measured messages between two hosts become a link; a measured all-reduce takes the place of a formula of
`exchange_cost`. For n ranks where m were measured, the bus bandwidth is the same, as nccl-tests define it,
and the latency grows with the ring's steps:

    t_n(S) = t_m(0) · (n−1)/(m−1) + (t_m(S) − t_m(0)) · f(n)/f(m)      f(n) = 2(n−1)/n
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringleader.errors import RequestError
from ringleader.measurements.collective import CollectiveRun, bus_factor
from ringleader.measurements.point_to_point import PointToPointRun

_GIGABIT = 1e9 / 8
_MOST, _SHORTEST = 1e15, 1e-12
PREFERRED = ("ringleader", "nccl")
"""Implementations of which the first that was measured is taken; else the first of all."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """What a message between two ranks meets."""

    name: str
    bandwidth: float
    """Bytes per second, each way, of one port."""
    latency: float
    """Seconds until a message of no length has arrived."""
    efficiency: float = 1.0
    """Part of the bandwidth that messages get."""
    source: str = ""
    curve: tuple[tuple[float, float], ...] = ()
    """Measured (bytes, seconds), rising; where there is one, it counts instead of the other numbers."""
    kind: str = ""
    """``nvlink``, ``pci`` or ``net`` (RDMA), of which NCCL knows the latencies; empty: none of them."""

    @property
    def rate(self) -> float:
        """Bytes per second of large messages."""
        return self.bandwidth * self.efficiency

    def seconds(self, size: float) -> float:
        """Return the time of one message of ``size`` bytes.

        Of a curve: between two sizes in a straight line; beyond the largest with the last slope.
        """
        curve = self.curve
        if not curve:
            return self.latency + size / self.rate
        if size <= curve[0][0]:
            return curve[0][1]
        at = min(bisect.bisect_left(curve, (size, 0.0)), len(curve) - 1)
        (low, first), (high, last) = curve[at - 1], curve[at]
        return first + (last - first) * (size - low) / (high - low)


@dataclass(frozen=True, kw_only=True)
class Network:
    """What connects the ranks of a job."""

    name: str
    between: Link
    """Between hosts: one port of a host, which all its ranks share."""
    within: Link
    """Between ranks of one host."""
    ports: int = 1
    """Ports of each host."""
    switch: float = 0.0
    """Bytes per second of an array that the GPUs of a host sum in their switch (NVLS); 0: it cannot."""
    fill: float = 0.0
    """Seconds of filling a pipeline, see `exchange_cost`."""


def from_curve(name: str, points: Sequence[tuple[float, float]]) -> Link:
    """Return the link that measured (bytes, seconds) describe; ValueError says why they cannot.

    The slope between the two largest messages is its rate; the time of the smallest is its latency.
    """
    curve = tuple(sorted((float(size), float(seconds)) for size, seconds in points))
    if len(curve) < 2:
        raise ValueError("a curve needs at least two sizes")
    if not all(0 <= size <= _MOST and _SHORTEST <= seconds <= _MOST for size, seconds in curve):
        raise ValueError(
            f"sizes must not be negative, seconds at least {_SHORTEST:g}, both at most {_MOST:g}"
        )
    if len({size for size, _ in curve}) < len(curve):
        raise ValueError("a size is there twice")
    (size, seconds), (largest, longest) = curve[-2:]
    if longest <= seconds:
        raise ValueError(f"{largest:g} bytes take no longer than {size:g}: larger messages are needed")
    rate = (largest - size) / (longest - seconds)
    return Link(name=name, bandwidth=rate, latency=curve[0][1], source="measured", curve=curve)


@dataclass(frozen=True, kw_only=True)
class MeasuredAllReduce:
    """Seconds of an all-reduce by size."""

    ranks: int
    per_host: int
    link: Link
    """Its curve: bytes of the whole array, and seconds."""
    source: str

    def seconds(self, size: float, ranks: int) -> float:
        """Return the time among ``ranks`` ranks."""
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
    by_size: dict[int, float] = {}
    hosts = [place.host for place in run.places]
    for one in run.transfers:
        took = one.latency if one.latency is not None else one.size / one.rate if one.rate else None
        if one.both_ways_rate:
            took = max(took or 0.0, 2 * one.size / one.both_ways_rate)
        if took is not None and hosts[one.source] != hosts[one.target]:
            by_size[one.size] = max(took, by_size.get(one.size, took))
    return _measured_link(f"curve {source}", by_size.items(), source)


def all_reduce_of(run: CollectiveRun, source: str) -> MeasuredAllReduce:
    """Return the cost of an all-reduce. RequestError: another operation, one rank, or too few sizes."""
    measured = {series.implementation: series for series in run.series if series.results}
    if run.operation != "allreduce" or run.ranks < 2 or not measured:
        what = f"measures {run.operation} of {run.ranks} ranks; an allreduce of several is needed"
        raise RequestError(what, where=source, hint="ringleader bench allreduce")
    series = next(measured[name] for name in (*PREFERRED, *measured) if name in measured)
    timings = [(result.size, result.in_place or result.out_of_place) for result in series.results]
    points = [(size, timing.seconds) for size, timing in timings if timing is not None and size > 0]
    link = _measured_link(f"{series.implementation} of {source}", points, source)
    return MeasuredAllReduce(ranks=run.ranks, per_host=run.per_host, link=link, source=source)


def _measured_link(name: str, measured: Iterable[tuple[int, float]], source: str) -> Link:
    """Return the link of measured times; a message that seems to take longer than a larger one does not.

    What disturbs a measurement makes it longer, never shorter.
    """
    points: list[tuple[float, float]] = []
    for size, seconds in sorted(measured, reverse=True):
        at_most = points[-1][1] * (1 - 1e-9) if points else seconds
        points.append((float(size), min(seconds, at_most)))
    try:
        return from_curve(name, points)
    except ValueError as error:
        raise RequestError(f"is not a curve: {error}", where=source) from None


def _ethernet(gigabits: int) -> tuple[Link, ...]:
    rate = gigabits * _GIGABIT
    tcp = "rate: IEEE 802.3; efficiency: 1448 of 1538 bytes of a frame; latency assumed"
    roce = "rate: IEEE 802.3; efficiency: 4096 bytes in frames of 4194; latency: NCCL tuning.cc, NET Simple"
    return (
        Link(name=f"{gigabits}gbe-tcp", bandwidth=rate, latency=30e-6, efficiency=0.94, source=tcp),
        Link(
            name=f"{gigabits}gbe-roce",
            bandwidth=rate,
            latency=14e-6,
            efficiency=0.97,
            source=roce,
            kind="net",
        ),
    )


def _infiniband(name: str, gigabits: int, efficiency: float) -> Link:
    source = "rate: IBTA; efficiency: what acceptance tests ask of ib_write_bw; "
    source += "latency: NCCL tuning.cc, NET Simple"
    rate = gigabits * _GIGABIT
    return Link(name=name, bandwidth=rate, latency=14e-6, efficiency=efficiency, source=source, kind="net")


def _nvlink(name: str, bandwidth: float, links: str) -> Link:
    source = f"rate: {links}; efficiency assumed; latency: NCCL tuning.cc, NVLINK Simple"
    return Link(name=name, bandwidth=bandwidth, latency=3.4e-6, efficiency=0.8, source=source, kind="nvlink")


def _by_name(*links: Link) -> dict[str, Link]:
    return {link.name: link for link in links}


BETWEEN = _by_name(
    *(link for gigabits in (1, 10, 25, 50, 100, 200, 400) for link in _ethernet(gigabits)),
    _infiniband("edr-infiniband", 100, 0.95),
    _infiniband("hdr-infiniband", 200, 0.9),
    _infiniband("ndr-infiniband", 400, 0.95),
    Link(
        name="edr-ipoib",
        bandwidth=100 * _GIGABIT,
        latency=30e-6,
        efficiency=0.25,
        source="rate: IBTA; efficiency (about one core's worth of TCP) and latency assumed: measure yours",
    ),
)
"""Links between hosts."""
WITHIN = _by_name(
    Link(
        name="shared-memory",
        bandwidth=48e9,
        latency=2e-6,
        source="measured on a virtual machine with two cores (64 MiB, both ranks together): measure yours",
    ),
    Link(
        name="pcie",
        bandwidth=16e9,
        latency=5.7e-6,
        efficiency=0.75,
        source="rate: PCIe 3.0 x16; efficiency assumed; latency: NCCL tuning.cc, PCI Simple",
        kind="pci",
    ),
    _nvlink("nvlink-1", 80e9, "four links of NVLink 1"),
    _nvlink("nvlink", 150e9, "six links of NVLink 2"),
    _nvlink("nvswitch", 300e9, "twelve links of NVLink 3"),
)
"""Links within a host. The rate of ``shared-memory`` is what all ranks of a host have together."""


def faster_than(name: str) -> list[str]:
    """Return what somebody would take in place of this network: the same line by RDMA, the next line."""
    line, _, protocol = name.partition(" ")[0].partition("-")
    if protocol == "ipoib":
        return [f"{line}-infiniband"]
    lines = [one.removesuffix("-tcp") for one in BETWEEN if one.endswith("-tcp")]
    if protocol == "infiniband":
        lines = ["edr", "hdr", "ndr"]
    if line not in lines:
        return []
    found = [f"{line}-roce"] if protocol == "tcp" else []
    return found + [f"{one}-{protocol}" for one in lines[lines.index(line) + 1 :][:1]]
