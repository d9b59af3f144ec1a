"""The options of ``ringleader predict``, as they were written, and what they ask for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ringleader.cli.json_output import JsonOptions
from ringleader.cli.predict.input_files import read_curve, read_job
from ringleader.errors import Fault, RequestError, collected
from ringleader.predict import models
from ringleader.predict.measured_curve import MeasuredAllReduce
from ringleader.predict.networks import BETWEEN, WITHIN, Link, Network
from ringleader.predict.profile import (
    ENGINE_FUSION_BYTES,
    FUSION_BYTES,
    Profile,
    even_segments,
    profile_of_model,
)
from ringleader.predict.profile_document import MOST, SMALLEST, MeasuredJob
from ringleader.predict.step_model import STRAGGLER, Setup

LARGEST = 10_000_000
"""Ranks of one job; nobody has more."""
USUAL_SLOTS = 8
_POWERS = tuple(2**i for i in range(10))


USUAL_NETWORK = "25gbe-tcp"
"""Taken where none is named; measured points between hosts then say its bandwidth."""


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """The options, as they were written."""

    source: str | None
    model: str | None = None
    rate: float | None = None
    batch: float | None = None
    gradients: float | None = None
    network: str | None = None
    within: str = "pcie"
    ports: int = 1
    curve: str | None = None
    ranks: str | None = None
    per_host: int | None = None
    algorithm: str = "hierarchical"
    servers: int = 0
    servers_apart: bool = False
    wire: str = "fp32"
    straggler: float = STRAGGLER
    fixed: float = 0.0
    micro_steps: int = 1
    no_overlap: bool = False
    until: float | None = None
    what_if: tuple[str, ...] = ()
    from_specifications: bool = False
    format: str = "table"
    json: JsonOptions = field(default_factory=JsonOptions)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be predicted."""

    job: MeasuredJob
    setup: Setup
    ranks: tuple[int, ...]
    others: tuple[Network, ...]
    network_known: bool
    """Whether what is between hosts was named or measured."""


def request_of(options: PredictOptions) -> Request:
    """Return what is asked for. RequestError with all that is wrong."""
    faults: list[Fault] = []
    job, network, ranks, curve = None, None, None, None
    with collected(faults):
        job = _job(options)
    if options.curve is not None:
        with collected(faults):
            curve = read_curve(options.curve)
    with collected(faults):
        network = _network(options, options.network or USUAL_NETWORK, curve=curve)
    if network is not None and options.network is None and curve is None:
        assumed = replace(network.between, name=f"{USUAL_NETWORK} (assumed)")
        network = replace(network, between=assumed)
    others = []
    for name in options.what_if:
        with collected(faults):
            others.append(_network(options, name, "--what-if"))
    with collected(faults):
        ranks = _ranks(options.ranks)
    faults += _numbers(options)
    if faults or job is None or network is None:
        raise RequestError(faults)
    per_host = options.per_host or job.per_host or USUAL_SLOTS
    setup = Setup(
        network=network,
        per_host=per_host,
        algorithm=options.algorithm,
        wire=options.wire,
        straggler=options.straggler,
        fixed=options.fixed,
        micro_steps=options.micro_steps,
        overlap=not options.no_overlap,
        fusion_bytes=ENGINE_FUSION_BYTES if options.algorithm == "engine" else FUSION_BYTES,
        sharing=job.sharing,
        all_reduce=curve if isinstance(curve, MeasuredAllReduce) else None,
        servers=options.servers,
        servers_apart=options.servers_apart,
    )
    return Request(
        job=job,
        setup=setup,
        ranks=ranks or _usual_ranks(job, per_host),
        others=tuple(others),
        network_known=options.network is not None or curve is not None,
    )


def _job(options: PredictOptions) -> MeasuredJob:
    """Return the job of SOURCE, or of --model and --rate."""
    faults: list[Fault] = []
    known = None
    if options.model is not None:
        try:
            known = models.model(options.model)
        except KeyError:
            hint = f"models: {', '.join(models.NAMES)}"
            faults.append(Fault(where="--model", what=f"no model is called {options.model!r}", hint=hint))
    for name in ("rate", "batch", "gradients"):
        value = getattr(options, name)
        if value is not None and not SMALLEST <= value <= MOST:
            faults.append(Fault(where=f"--{name}", what=f"{value:g} is not from {SMALLEST:g} to {MOST:g}"))
    if options.source is not None:
        with collected(faults):
            job = read_job(options.source, size=options.gradients, batch=options.batch, layers_of=known)
            if not faults:
                return job
        raise RequestError(faults)
    if options.model is None and options.gradients is None:
        hint = "a profile, a run of `ringleader scale` or bench train, or --model NAME --rate N --batch N"
        faults.append(Fault(where="SOURCE", what="nothing says what is trained", hint=hint))
    for name in ("rate", "batch"):
        if getattr(options, name) is None:
            hint = {"rate": "samples per second of one rank", "batch": "samples of its step"}[name]
            faults.append(Fault(where=f"--{name}", what="is missing", hint=hint))
    if faults:
        raise RequestError(faults)
    assert options.rate is not None and options.batch is not None
    if known is None:
        step = options.batch / options.rate
        parts = even_segments(int(options.gradients or 0), 2 / 3 * step)
        return MeasuredJob(
            profile=Profile(
                name="job", batch=options.batch, before=step / 3, segments=parts, source="options"
            )
        )
    unit = "sequences" if known.name.startswith("bert") else "images"
    return MeasuredJob(profile=profile_of_model(known, rate=options.rate, batch=options.batch, unit=unit))


def _network(
    options: PredictOptions,
    name: str,
    where: str = "--network",
    curve: Link | MeasuredAllReduce | None = None,
) -> Network:
    faults: list[Fault] = []
    between, within = BETWEEN.get(name), WITHIN.get(options.within)
    if isinstance(curve, Link):
        between = curve
    elif between is None:
        hint = f"networks: {', '.join(BETWEEN)}"
        faults.append(Fault(where=where, what=f"no network is called {name!r}", hint=hint))
    if within is None:
        hint = f"within a host: {', '.join(WITHIN)}"
        faults.append(Fault(where="--within", what=f"no link is called {options.within!r}", hint=hint))
    if faults or between is None or within is None:
        raise RequestError(faults)
    return Network(name=between.name, between=between, within=within, ports=max(1, options.ports))


def _ranks(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    wrong = [word for word in words if not (word.isascii() and word.isdigit() and 0 < len(word) < 9)]
    wrong += [word for word in words if word not in wrong and not 1 <= int(word) <= LARGEST]
    if wrong or len(words) > 1000:
        what = (
            f"{wrong[0]!r} is not a number of ranks from 1 to {LARGEST}" if wrong else "more than 1000 sizes"
        )
        raise RequestError(Fault(where="--ranks", what=what, hint="for example 1,8,64"))
    return tuple(int(word) for word in words)


def _numbers(options: PredictOptions) -> list[Fault]:
    """Return faults of numbers that cannot be."""
    faults = []
    for name, value, low, high in (
        ("--per-host", options.per_host, 1, 1024),
        ("--ports", options.ports, 1, 64),
        ("--servers", options.servers, 0, LARGEST),
        ("--straggler", options.straggler, 0.0, 1.0),
        ("--fixed", options.fixed, 0.0, 1e6),
        ("--micro-steps", options.micro_steps, 1, 1_000_000),
        ("--until", options.until, 0.0, 1.0),
    ):
        if value is not None and not low <= value <= high:
            faults.append(Fault(where=name, what=f"{value:g} is not from {low:g} to {high:g}"))
    return faults


def _usual_ranks(job: MeasuredJob, per_host: int) -> tuple[int, ...]:
    """One rank, one host, then powers of two of hosts: as far as a fit reaches, where there are points."""
    largest = max((point.ranks for point in job.points), default=0)
    sizes = {1, *(per_host * hosts for hosts in _POWERS)}
    if len(job.points) > 1:
        sizes = {size for size in sizes if size <= 4 * largest}
        is_full = [p.ranks for p in job.points if p.ranks <= per_host or p.ranks % per_host == 0]
        sizes |= set(is_full)
    return tuple(sorted(sizes))
