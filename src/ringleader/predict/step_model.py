"""A training step of N ranks: computing, exchange that computing does not hide, waiting, fixed cost. Pure.

    T(N) = a · t_micro + optimizer + exposed + (p−1) · t_micro + wait(N) + u
    wait(N) = σ · t_micro · √a · E[max of N normals]

a: micro-steps of an update; p: stages of a pipeline, which are idle while it fills and drains; u: what each
update costs once there is more than one rank. Exposed is of the exchanges (`strategies`) what computing does
not hide, and what hiding costs, for both use the GPU: κ seconds for bytes that the link within a host moves
in one second. Gradients of DDP are exchanged bucket by bucket as they become ready. Of n exchanges that are
spread evenly over W seconds of computing one is not hidden, at an end, and of the others what is longer than
their part of W. Efficiency is weak scaling's, as everywhere: E(N) = X(N) / (N · X(1)), see ``metrics``; one
rank exchanges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any

from ringleader.metrics import efficiency
from ringleader.option_fields import BEYOND, flag, option
from ringleader.predict.exchange_cost import ALGORITHMS, Shape, collective_seconds, moved_bytes
from ringleader.predict.networks import MeasuredAllReduce, Network
from ringleader.predict.profile import FUSION_BYTES, Bucket, Profile, buckets_of
from ringleader.predict.strategies import BACKWARD, FORWARD, STRATEGIES, Division, Exchange, exchanges

_COUNT: Mapping[str, Any] = {"metavar": "N", "wrong": BEYOND}
_FROM_ZERO: Mapping[str, Any] = {"least": 0, "wrong": BEYOND}
_SOME: Mapping[str, Any] = {"metavar": "N", **_FROM_ZERO}
MOST_RANKS = 10_000_000
"""Of one job; nobody has more."""
WIRE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a number on the wire."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How a job trains, but for the number of ranks; fields with an option are those of ``predict``."""

    network: Network
    per_host: int = option(
        "Ranks per host. [default: as measured, else those of --facts or --gpu, else 8]",
        default=1,
        least=1,
        most=1024,
        **_COUNT,
    )
    algorithm: str = option(
        "How gradients are summed; nccl: as NCCL chooses; engine: Ringleader's own algorithm, in host "
        "memory. Default: nccl with --gpu, else hierarchical.",
        default="hierarchical",
        choices=ALGORITHMS,
    )
    wire: str = option("Data type used to send gradients.", default="fp32", choices=tuple(WIRE_BYTES))
    straggler: float = option(
        "Standard deviation of a rank's step time, as a fraction of it. [default: from measured points, "
        "else 0]",
        default=0.0,
        metavar="FRACTION",
        most=1,
        **_FROM_ZERO,
    )
    fixed: float = option(
        "Time added to each update if there are several ranks.",
        default=0.0,
        metavar="SECONDS",
        most=1e6,
        **_FROM_ZERO,
    )
    """Agreement, launches."""
    micro_steps: int = option(
        "Gradient accumulation steps (micro-batches) per update.",
        default=1,
        least=1,
        most=1_000_000,
        **_COUNT,
    )
    overlap: bool = flag(
        "Start the exchange only after the backward pass.", "--no-overlap", default=True, negated=True
    )
    fusion_bytes: int = FUSION_BYTES
    sharing: float = 1.0
    """Rate of a rank on a full host in parts of its rate alone there, without any exchange."""
    slowdown: float = 1.0
    """Seconds of an exchange over what is stated or measured: a job may get less than messages do."""
    all_reduce: MeasuredAllReduce | None = None
    """What was measured of an all-reduce; it counts in place of the algorithm's formula."""
    servers: int = option(
        "Number of parameter servers. [default: one per host]",
        default=0,
        metavar="N",
        most=MOST_RANKS,
        after="algorithm",
        **_FROM_ZERO,
    )
    servers_apart: bool = flag("Run parameter servers on separate hosts.", after="servers")
    strategy: str = option(
        "How weights, gradients and optimizer state are sharded.", default="ddp", choices=STRATEGIES
    )
    shard_ranks: int = option(
        "Number of ranks over which one copy of the state is sharded (HSDP). [default: all]",
        default=0,
        most=MOST_RANKS,
        **_SOME,
    )
    tensor: int = option("Number of tensor-parallel ranks.", default=1, least=1, most=1024, **_COUNT)
    pipeline: int = option("Number of pipeline stages.", default=1, least=1, most=1024, **_COUNT)
    recompute: bool = flag("Recompute activations in the backward pass (checkpointing).")
    contention: float = 0.0
    """κ: seconds that computing loses by hiding what would take a second over the link within a host."""
    batch: float = 0.0
    """Sequences of a step of a transformer; 0: the profile is not one of a transformer's shape."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One size. Parts of a step add up to ``step``."""

    ranks: int
    hosts: int
    per_host: int
    step: float
    """Seconds of an update."""
    compute: float
    """Seconds in which a rank computes."""
    exposed: float
    """Seconds of the exchange that no computing hides."""
    waiting: float
    """Seconds until the slowest rank is there."""
    fixed: float
    """Seconds that each update costs once there is more than one rank."""
    exchange: float
    """Seconds of the whole exchange, hidden or not."""
    rate: float
    """Samples per second over all ranks."""
    efficiency: float
    """Against one rank that exchanges nothing."""
    idle: float = 0.0
    """Seconds in which a stage of a pipeline has nothing to do."""


@lru_cache(maxsize=4096)
def expected_largest(count: int) -> float:
    """Return the mean of the largest of ``count`` standard normals (Blom 1958; within 2% of the exact)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def division_of(ranks: int, setup: Setup) -> Division:
    """Return the groups of ``ranks`` ranks. ValueError where they do not fill hosts, or groups."""
    per_host = min(ranks, setup.per_host)
    if ranks < 1 or ranks % per_host:
        raise ValueError(f"{ranks} ranks do not fill hosts of {per_host}")
    if ranks == 1:
        return Division(ranks=1, per_host=1, strategy=setup.strategy)
    parts = setup.tensor * setup.pipeline
    if ranks % parts:
        raise ValueError(f"{ranks} ranks do not fill groups of {parts} that share a model")
    copies = ranks // parts
    if setup.shard_ranks and copies > setup.shard_ranks and copies % setup.shard_ranks:
        words = f"groups of {setup.shard_ranks} that share its state"
        raise ValueError(f"{copies} copies of a model do not fill {words}")
    return Division(
        ranks=ranks,
        per_host=per_host,
        strategy=setup.strategy,
        shard_ranks=setup.shard_ranks,
        tensor=setup.tensor,
        pipeline=setup.pipeline,
    )


@lru_cache(maxsize=256)
def _buckets(profile: Profile, fusion_bytes: int, algorithm: str) -> tuple[Bucket, ...]:
    return buckets_of(profile, fusion_bytes, at_most=algorithm == "engine")


def predict(profile: Profile, setup: Setup, ranks: int) -> Prediction:
    """Return what ``ranks`` ranks would do. ValueError where they do not fill their hosts or groups."""
    division = division_of(ranks, setup)
    slower = 1.0 if ranks == 1 else _slower(division.per_host, setup)
    before = profile.before + profile.backward
    micro, steps = slower * before, setup.micro_steps
    exchange, exposed = _exchanged(profile, setup, division, slower)
    compute = steps * micro + slower * profile.after
    idle = (division.pipeline - 1) * micro
    waiting = setup.straggler * micro * steps**0.5 * expected_largest(ranks)
    fixed = setup.fixed if ranks > 1 else 0.0
    step = compute + exposed + idle + waiting + fixed
    samples = profile.batch * steps
    rate = ranks * samples / step
    return Prediction(
        ranks=ranks,
        hosts=ranks // division.per_host,
        per_host=division.per_host,
        step=step,
        compute=compute,
        exposed=exposed,
        waiting=waiting,
        fixed=fixed,
        exchange=exchange,
        rate=rate,
        efficiency=efficiency(rate, ranks, samples / (steps * before + profile.after)),
        idle=idle,
    )


def _exchanged(profile: Profile, setup: Setup, division: Division, slower: float) -> tuple[float, float]:
    """Return the seconds of all exchanges of an update, and of those that computing does not hide."""
    if division.ranks == 1:
        return 0.0, 0.0
    buckets = _buckets(profile, setup.fusion_bytes, setup.algorithm)
    wire = WIRE_BYTES[setup.wire]
    windows = {FORWARD: slower * profile.before, BACKWARD: slower * profile.backward}
    backward_end = sum(windows.values())
    spread: dict[tuple[str, int], tuple[float, int]] = {}
    total, exposed, last, moved = 0.0, 0.0, 0.0, 0.0
    for one in exchanges(profile, division, buckets, wire, setup.micro_steps):
        seconds = _exchange_seconds(setup, one)
        all_of_them = seconds * one.times * one.every
        total += all_of_them
        moved += moved_bytes(one.collective, one.size, one.group) * one.times * one.every
        if not setup.overlap or one.hidden_by not in windows:
            exposed += all_of_them
        elif one.ready is not None:
            last = max(last, slower * one.ready) + seconds
        else:
            key = one.hidden_by, one.every
            carried, count = spread.get(key, (0.0, 0))
            spread[key] = carried + seconds * one.times, max(count, one.times)
    exposed += max(0.0, last - backward_end)
    for (window, every), (carried, count) in spread.items():
        exposed += every * (carried / count + (1 - 1 / count) * max(0.0, carried - windows[window]))
    hidden = max(0.0, 1 - exposed / total) if total else 0.0
    return total, exposed + setup.contention * hidden * moved / setup.network.within.rate


def _exchange_seconds(setup: Setup, one: Exchange) -> float:
    """Return the seconds of an exchange: as measured, where it was measured between hosts or not likewise."""
    measured, group = setup.all_reduce, one.group
    is_measured = measured is not None and (group.hosts > 1) == (measured.ranks > measured.per_host)
    if measured is not None and is_measured and one.collective != "sendrecv":
        part = 1.0 if one.collective == "allreduce" else 0.5
        return part * setup.slowdown * measured.seconds(one.size, group.ranks)
    shape = replace(group, servers=setup.servers, servers_apart=setup.servers_apart)
    return setup.slowdown * _seconds(one.collective, setup.algorithm, one.size, shape, setup.network)


@lru_cache(maxsize=4096)
def _seconds(collective: str, algorithm: str, size: float, shape: Shape, network: Network) -> float:
    return collective_seconds(collective, algorithm, size, shape, network)


def _slower(per_host: int, setup: Setup) -> float:
    """Return how much longer computing takes beside others: in a straight line up to a full host."""
    if setup.per_host == 1:
        return 1 / setup.sharing
    return 1 + (1 / setup.sharing - 1) * (per_host - 1) / (setup.per_host - 1)


def size_below(
    efficiency_of: Callable[[int], float], per_host: int, bound: float, largest: int = 1 << 20
) -> int | None:
    """Return the smallest size (full hosts) whose efficiency is under ``bound``, else ``None``.

    Doubles the size until one is, then halves the interval: right where efficiency falls with the size.
    """
    low = 0
    hosts = 1
    while efficiency_of(hosts * per_host) >= bound:
        if hosts * per_host >= largest:
            return None
        low, hosts = hosts, 2 * hosts
    while hosts - low > 1:
        middle = (low + hosts) // 2
        if efficiency_of(middle * per_host) < bound:
            hosts = middle
        else:
            low = middle
    return hosts * per_host
