"""A step of ranks on hosts that one machine plays (a lab): they share its cores and its memory. Pure.

What an exchange costs the processor besides the line (sums, copies, the network's protocol, looking for
messages) is what an all-reduce of as many ranks takes over links without a limit, where nothing but the cores
limits it. No exchange is shorter, and while no core is free computing gets what it leaves of them: a step of
ranks that share all cores takes at least what computing and exchanging take of the cores together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from ringleader.predict.exchange_cost import Shape, all_reduce_seconds
from ringleader.predict.networks import WITHIN, Link, MeasuredAllReduce, Network
from ringleader.predict.profile import ENGINE_FUSION_BYTES, Profile, buckets_of


@dataclass(frozen=True, kw_only=True)
class LabSetup:
    """What is measured of a lab. All-reduces are of memory that the engine shares, as gradients are."""

    between: Link
    """Messages between two hosts."""
    per_host: int
    within: MeasuredAllReduce
    """An all-reduce of the ranks of one host, nobody else at work."""
    unlimited: MeasuredAllReduce
    """One of as many ranks as train, over links without a limit."""
    cores: int
    """Of the machine; where there are not fewer ranks, no core is left for the exchange."""
    sharing: float = 1.0
    """Rate of a rank beside the others, without any exchange, in parts of its rate alone."""
    fixed: float = 0.0
    """Seconds that each step takes longer on several ranks."""
    meeting: float = 0.0
    """Seconds until all ranks have come to an exchange, once a mean rank has; the last one's: ``fixed``."""

    @property
    def memory_rate(self) -> float:
        """Bytes per second that ranks of one host read and write together while they reduce.

        An all-reduce of S bytes in memory that g ranks share reads g·S and writes g·S.
        """
        return 2 * self.within.per_host * self.within.link.rate


@dataclass(frozen=True, kw_only=True)
class LabStep:
    """Seconds."""

    step: float
    compute: float
    exchange: float
    """Hidden or not."""


def lab_step(profile: Profile, setup: LabSetup, ranks: int) -> LabStep:
    """Return a step of ``ranks`` ranks, which fill their hosts. On one host the exchange follows backward."""
    hosts = max(1, ranks // setup.per_host)
    shape = Shape(hosts=hosts, per_host=min(ranks, setup.per_host))
    rate = setup.memory_rate
    memory = Link(name="memory", bandwidth=rate / hosts, latency=WITHIN["shared-memory"].latency)
    network = Network(name=setup.between.name, between=setup.between, within=memory)
    slower, copying = 1 / setup.sharing, 2 * ranks / rate  # all ranks copy their gradients at the same time
    buckets = buckets_of(profile, ENGINE_FUSION_BYTES if hosts > 1 else profile.size, at_most=True)
    copied = accumulate(bucket.size for bucket in buckets)
    ready = [slower * one.ready + copying * size for one, size in zip(buckets, copied, strict=True)]
    backward_end = slower * (profile.before + profile.backward) + copying * profile.size
    work = [setup.unlimited.seconds(bucket.size, ranks) for bucket in buckets]
    line = [all_reduce_seconds("engine", bucket.size, shape, network) for bucket in buckets]
    costs = [max(pair) for pair in zip(line, work, strict=True)]
    met = (len(costs) - 1) * setup.meeting  # who waits for others keeps no processor busy
    busy = sum(work) / (sum(costs) + met) if ranks >= setup.cores else 0.0
    costs = [*(cost + setup.meeting for cost in costs[:-1]), costs[-1]]
    computed, last = backward_end, backward_end + sum(costs)
    if hosts > 1:
        computed, last = overlapped(ready, costs, backward_end, contention=busy)
    compute = computed + slower * profile.after
    step = compute + max(0.0, last - computed) + setup.fixed
    return LabStep(step=step, compute=compute, exchange=sum(costs))


def overlapped(
    ready: Sequence[float], seconds: Sequence[float], backward_end: float, *, contention: float
) -> tuple[float, float]:
    """Return (when backward ends, when the last exchange ends): one after the other, each when it is ready.

    ``contention``: the part of the processors that an exchange keeps busy; so much slower is computing while
    one is under way. ``ready`` and ``backward_end`` count what is computed without any exchange.
    """
    clock, computed, end = 0.0, 0.0, 0.0
    for at, duration in zip(ready, seconds, strict=True):
        clock += _to_compute(at - computed, end - clock, contention)
        computed = at
        end = max(end, clock) + duration
    return clock + _to_compute(backward_end - computed, end - clock, contention), end


def _to_compute(work: float, busy: float, contention: float) -> float:
    """Return the seconds that so much work takes while an exchange is under way for another ``busy``."""
    done = (1 - contention) * max(0.0, busy)
    return max(0.0, busy) + work - done if work > done else work / (1 - contention) if work > 0 else 0.0
