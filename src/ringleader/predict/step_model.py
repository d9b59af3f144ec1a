"""A training step of N ranks: computing, exchange that computing does not hide, waiting, fixed cost. Pure.

    T(N) = (a−1) · t_micro + max(end of backward, end of the last exchange) + optimizer + wait(N) + u
    wait(N) = σ · t_micro · √a · E[max of N normals]

a: micro-steps of an update, of which only the last exchanges; u: what each update costs once there is more
than one rank. Efficiency is weak scaling's, as everywhere: E(N) = X(N) / (N · X(1)), see ``metrics``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

from ringleader.metrics import efficiency
from ringleader.option_fields import BEYOND, flag, option
from ringleader.predict.exchange_cost import ALGORITHMS, Shape, all_reduce_seconds
from ringleader.predict.networks import MeasuredAllReduce, Network
from ringleader.predict.profile import FLOAT32, FUSION_BYTES, Bucket, Profile, buckets_of

_COUNT: Mapping[str, Any] = {"metavar": "N", "wrong": BEYOND}
_FROM_ZERO: Mapping[str, Any] = {"least": 0, "wrong": BEYOND}
MOST_RANKS = 10_000_000
"""Of one job; nobody has more."""
WIRE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a number on the wire."""
STRAGGLER = 0.02
"""Standard deviation of a rank's step in parts of the step, where nothing is measured: 1 to 3% is usual."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How a job trains, but for the number of ranks; fields with an option are those of ``predict``."""

    network: Network
    per_host: int = option(
        "Ranks per host. [default: as measured, else 8]", default=1, least=1, most=1024, **_COUNT
    )
    algorithm: str = option(
        "How gradients are reduced; engine: by Ringleader's engine in CPU memory.",
        default="hierarchical",
        choices=ALGORITHMS,
    )
    wire: str = option("Type in which gradients are sent.", default="fp32", choices=tuple(WIRE_BYTES))
    straggler: float = option(
        "Standard deviation of a rank's step time, as a fraction of it.",
        default=STRAGGLER,
        metavar="FRACTION",
        most=1,
        **_FROM_ZERO,
    )
    fixed: float = option(
        "Fixed cost of each update on several ranks.", default=0.0, metavar="SECONDS", most=1e6, **_FROM_ZERO
    )
    """Agreement, launches."""
    micro_steps: int = option("Backward passes per update.", default=1, least=1, most=1_000_000, **_COUNT)
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
    servers_apart: bool = flag("Put parameter servers on separate hosts.", after="servers")


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
    """Against one rank."""


@lru_cache(maxsize=4096)
def expected_largest(count: int) -> float:
    """Return the mean of the largest of ``count`` standard normals (Blom 1958; within 2% of the exact)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def shape_of(ranks: int, setup: Setup) -> Shape:
    """Return where ``ranks`` ranks are: full hosts. ValueError where they do not fill them."""
    per_host = min(ranks, setup.per_host)
    if ranks < 1 or ranks % per_host:
        raise ValueError(f"{ranks} ranks do not fill hosts of {per_host}")
    return Shape(
        hosts=ranks // per_host,
        per_host=per_host,
        servers=setup.servers,
        servers_apart=setup.servers_apart,
    )


@lru_cache(maxsize=256)
def _buckets(profile: Profile, fusion_bytes: int, algorithm: str) -> tuple[Bucket, ...]:
    return buckets_of(profile, fusion_bytes, at_most=algorithm == "engine")


def predict(profile: Profile, setup: Setup, ranks: int) -> Prediction:
    """Return what ``ranks`` ranks would do. ValueError where they do not fill their hosts."""
    shape = shape_of(ranks, setup)
    slower = 1.0 if ranks == 1 else _slower(shape.per_host, setup)
    before = profile.before + profile.backward
    backward_end = slower * before
    exchange, last = 0.0, 0.0 if setup.overlap else backward_end
    for bucket in _buckets(profile, setup.fusion_bytes, setup.algorithm):
        cost = _exchange_seconds(setup, WIRE_BYTES[setup.wire] / FLOAT32 * bucket.size, shape)
        exchange += cost
        last = max(last, slower * bucket.ready) + cost
    exposed = max(0.0, last - backward_end) if exchange else 0.0
    compute = setup.micro_steps * backward_end + slower * profile.after
    waiting = setup.straggler * backward_end * setup.micro_steps**0.5 * expected_largest(ranks)
    fixed = setup.fixed if ranks > 1 else 0.0
    step = compute + exposed + waiting + fixed
    samples = profile.batch * setup.micro_steps
    rate = ranks * samples / step
    return Prediction(
        ranks=ranks,
        hosts=shape.hosts,
        per_host=shape.per_host,
        step=step,
        compute=compute,
        exposed=exposed,
        waiting=waiting,
        fixed=fixed,
        exchange=exchange,
        rate=rate,
        efficiency=efficiency(rate, ranks, samples / (setup.micro_steps * before + profile.after)),
    )


def _exchange_seconds(setup: Setup, size: float, shape: Shape) -> float:
    """Return the seconds of an exchange: as measured, where it was measured between hosts or not likewise."""
    measured = setup.all_reduce
    if measured is not None and (shape.hosts > 1) == (measured.ranks > measured.per_host):
        return setup.slowdown * measured.seconds(size, shape.ranks)
    return setup.slowdown * all_reduce_seconds(setup.algorithm, size, shape, setup.network)


def _slower(per_host: int, setup: Setup) -> float:
    """Return how much longer computing takes beside others: in a straight line up to a full host."""
    if setup.per_host == 1:
        return 1 / setup.sharing
    return 1 + (1 / setup.sharing - 1) * (per_host - 1) / (setup.per_host - 1)


def size_below(profile: Profile, setup: Setup, bound: float, largest: int = 1 << 20) -> int | None:
    """Return the smallest size (full hosts) whose efficiency is under ``bound``, else ``None``.

    Doubles the size until one is, then halves the interval: right where efficiency falls with the size.
    """
    low = 0
    hosts = 1
    while predict(profile, setup, hosts * setup.per_host).efficiency >= bound:
        if hosts * setup.per_host >= largest:
            return None
        low, hosts = hosts, 2 * hosts
    while hosts - low > 1:
        middle = (low + hosts) // 2
        if predict(profile, setup, middle * setup.per_host).efficiency < bound:
            hosts = middle
        else:
            low = middle
    return hosts * setup.per_host
