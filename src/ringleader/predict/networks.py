"""Networks and buses by name: what specifications state, and measured curves. Bytes per second, seconds.

The rate that counts is ``bandwidth · efficiency``. Sources of efficiencies: headers per frame (Ethernet),
what cluster acceptance tests ask of ``ib_write_bw`` (InfiniBand). Latencies of RDMA, NVLink and PCIe are
those that NCCL's own cost model has for large messages (``hwLat``, Simple protocol, src/graph/tuning.cc);
those of TCP are assumed. A number that is assumed says so in ``source``.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

_GIGABIT = 1e9 / 8
_MOST, _SHORTEST = 1e15, 1e-12


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

    @property
    def rate(self) -> float:
        """Bytes per second of large messages."""
        return self.bandwidth * self.efficiency

    def seconds(self, size: float) -> float:
        """Return the time of one message of ``size`` bytes."""
        return _interpolated(self.curve, size) if self.curve else self.latency + size / self.rate


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


def _interpolated(curve: tuple[tuple[float, float], ...], size: float) -> float:
    """Between two measured sizes in a straight line; behind the largest with the last slope."""
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
    note: str = field(default="")

    @property
    def host_rate(self) -> float:
        """Bytes per second that a host sends, all ports."""
        return self.ports * self.between.rate


_FRAMES = "rate: IEEE 802.3; efficiency: 1448 of 1538 bytes of a frame; latency assumed"
_FRAMES_ROCE = (
    "rate: IEEE 802.3; efficiency: 4096 bytes in frames of 4194; latency: NCCL tuning.cc, NET Simple"
)
_IB = "rate: IBTA; efficiency: what acceptance tests ask of ib_write_bw; latency: NCCL tuning.cc, NET Simple"


def _ethernet(gigabits: int) -> list[Link]:
    rate = gigabits * _GIGABIT
    return [
        Link(name=f"{gigabits}gbe-tcp", bandwidth=rate, latency=30e-6, efficiency=0.94, source=_FRAMES),
        Link(name=f"{gigabits}gbe-roce", bandwidth=rate, latency=14e-6, efficiency=0.97, source=_FRAMES_ROCE),
    ]


_BETWEEN = [
    *(link for gigabits in (1, 10, 25, 50, 100, 200, 400) for link in _ethernet(gigabits)),
    Link(name="edr-infiniband", bandwidth=100 * _GIGABIT, latency=14e-6, efficiency=0.95, source=_IB),
    Link(name="hdr-infiniband", bandwidth=200 * _GIGABIT, latency=14e-6, efficiency=0.9, source=_IB),
    Link(name="ndr-infiniband", bandwidth=400 * _GIGABIT, latency=14e-6, efficiency=0.95, source=_IB),
    Link(
        name="edr-ipoib",
        bandwidth=100 * _GIGABIT,
        latency=30e-6,
        efficiency=0.25,
        source="rate: IBTA; efficiency (about one core's worth of TCP) and latency assumed: measure yours",
    ),
]
_WITHIN = [
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
    ),
    Link(
        name="nvlink-1",
        bandwidth=80e9,
        latency=3.4e-6,
        efficiency=0.8,
        source="rate: four links of NVLink 1; efficiency assumed; latency: NCCL tuning.cc, NVLINK Simple",
    ),
    Link(
        name="nvlink",
        bandwidth=150e9,
        latency=3.4e-6,
        efficiency=0.8,
        source="rate: six links of NVLink 2; efficiency assumed; latency: NCCL tuning.cc, NVLINK Simple",
    ),
    Link(
        name="nvswitch",
        bandwidth=300e9,
        latency=3.4e-6,
        efficiency=0.8,
        source="rate: twelve links of NVLink 3; efficiency assumed; latency: NCCL tuning.cc, NVLINK Simple",
    ),
]
BETWEEN = {link.name: link for link in _BETWEEN}
"""Links between hosts."""
WITHIN = {link.name: link for link in _WITHIN}
"""Links within a host. The rate of ``shared-memory`` is what all ranks of a host have together."""
