"""``ringleader predict``: from one rank and a network to what N ranks would do, as text and as JSON."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ringleader.bench import run_file
from ringleader.bench.training.measured_profile import profile_text
from ringleader.cli.output import JsonOptions, show, table
from ringleader.cli.terminal_progress import shown_while
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RequestError, collected, refuse
from ringleader.fabric.byte_size import byte_size
from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.elastic import ElasticRun
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.training import TrainingRun
from ringleader.option_fields import BEYOND, WrongValueError, argument, flag, group, many, option
from ringleader.predict import models
from ringleader.predict.fitting import Fit
from ringleader.predict.forecast import Forecast, forecast
from ringleader.predict.measured_job import MOST, SMALLEST, MeasuredJob, from_document, from_run
from ringleader.predict.models import Model
from ringleader.predict.networks import (
    BETWEEN,
    WITHIN,
    Link,
    MeasuredAllReduce,
    Network,
    all_reduce_of,
    from_curve,
    link_of,
)
from ringleader.predict.profile import (
    ENGINE_FUSION_BYTES,
    FUSION_BYTES,
    Profile,
    even_segments,
    profile_of_model,
)
from ringleader.predict.step_model import MOST_RANKS, Setup
from ringleader.report.number_format import plural, seconds, span, thousands, times
from ringleader.scaling import Run
from ringleader.text_files import json_document, printed, read_text

MOST_LINES = 5
"""Lines of a curve that are named where they are wrong."""


def read_job(path: str, *, size: float | None, batch: float | None, layers_of: Model | None) -> MeasuredJob:
    """Return what a profile (TOML or JSON) or a stored run tells. RequestError names the place."""
    document, run = None, None
    if not path.endswith(".toml") and Path(path).is_dir():
        run = run_file.read_any(Path(path))
    else:
        document = _profile_document(path)
        if isinstance(document, dict) and "schema" in document:
            run = run_file.from_document(document, path)
    if run is None:
        return from_document(document, path, layers_of)
    if isinstance(run, Run):
        return from_run(run, path, size=size, batch=batch, layers_of=layers_of)
    if isinstance(run, TrainingRun) and (text := profile_text(run)) is not None:
        return from_document(tomllib.loads(text), path, layers_of)
    if isinstance(run, TrainingRun):
        hint = "ringleader bench train --arms ringleader,uncoupled,alone"
        raise RequestError("has no measurement of one rank alone", where=path, hint=hint)
    if isinstance(run, ElasticRun):
        raise RequestError("holds what happened to an elastic job, and no rate", where=path)
    what = f"holds a {run.kind} measurement, which does not say what is trained"
    raise RequestError(what, where=path, hint=f"give it as --curve {path}")


def _profile_document(path: str) -> Any:
    text, kind = _text(path, "PROFILE"), "TOML" if path.endswith(".toml") else "JSON"
    try:
        return tomllib.loads(text) if kind == "TOML" else json_document(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        what = f"is not {kind}: {error}"
    except ValueError as error:  # numbers of thousands of digits
        what = f"cannot be read: {error}"
    except RecursionError:
        what = "is nested too deep for a profile"
    raise RequestError(what, where=path)


def read_curve(path: str) -> Link | MeasuredAllReduce:
    """Return what a run of bench p2p or allreduce measured, or what lines of ``bytes seconds`` describe.

    In lines, a comma or blanks between the two; ``#`` begins a comment.
    """
    if path and (Path(path).is_dir() or path.endswith(".json")):
        run = run_file.read_any(Path(path))
        if isinstance(run, PointToPointRun):
            return link_of(run, path)
        if isinstance(run, CollectiveRun):
            return all_reduce_of(run, path)
        what = f"holds a {run.kind} measurement, which is not a curve"
        hint = "runs of ringleader bench p2p or allreduce, or lines of bytes and seconds"
        raise RequestError(what, where=path, hint=hint)
    points: list[tuple[float, float]] = []
    faults: list[Fault] = []
    for number, line in enumerate(_text(path, "--curve").splitlines(), 1):
        words = line.partition("#")[0].replace(",", " ").split()
        try:
            if words:
                size, took = map(float, words)
                points.append((size, took))
        except ValueError:
            faults.append(Fault(where=f"{path}:{number}", what="is not two numbers: bytes and seconds"))
    if not faults:
        try:
            return from_curve(f"curve {path}", points)
        except ValueError as error:
            faults.append(Fault(where=path, what=str(error)))
    if (more := len(faults) - MOST_LINES) > 0:
        faults[MOST_LINES:] = [Fault(where=path, what=f"{more} more lines are not two numbers")]
    raise RequestError(faults)


def _text(path: str, named_by: str) -> str:
    try:
        return printed(read_text(path))
    except (OSError, ValueError) as error:
        said = "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        what = f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else said
        raise RequestError(what, where=f"{named_by} {path}".rstrip()) from None


USUAL_SLOTS = 8
_POWERS = tuple(2**i for i in range(10))


USUAL_NETWORK = "25gbe-tcp"
"""Taken where none is named; measured points between hosts then say how fast it is."""


_AMOUNT: Mapping[str, Any] = {"metavar": "N", "least": SMALLEST, "most": MOST, "wrong": BEYOND}
_PART: Mapping[str, Any] = {"least": 0, "most": 1, "wrong": BEYOND}


def _called(known: Collection[str], what: str, every: str) -> Callable[[str], str]:
    """Return what refuses a name that is not known."""

    def read(name: str) -> str:
        if name not in known:
            raise WrongValueError(f"no {what} is called {name!r}", f"{every}: {', '.join(known)}")
        return name

    return read


_BETWEEN = _called(BETWEEN, "network", "networks")


def _ranks(text: str) -> tuple[int, ...]:
    """Read ``1,8,64``. Raises WrongValueError."""
    words = [word.strip() for word in text.split(",")]
    wrong = [word for word in words if not (word.isascii() and word.isdigit() and 0 < len(word) < 9)]
    wrong += [word for word in words if word not in wrong and not 1 <= int(word) <= MOST_RANKS]
    if wrong or len(words) > 1000:
        one = f"{wrong[0]!r} is not a number of ranks from 1 to {MOST_RANKS}" if wrong else ""
        raise WrongValueError(one or "more than 1000 sizes", "for example 1,8,64")
    return tuple(int(word) for word in words)


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """The options, as they were written."""

    source: str | None = argument("[PROFILE|RUN]", default=None)
    model: str | None = option(
        "A known model: resnet-50, vgg-16, bert-large, …",
        metavar="NAME",
        read=_called(models.NAMES, "model", "models"),
    )
    rate: float | None = option("Samples per second of one rank.", **_AMOUNT)
    batch: float | None = option("Samples per step of one rank.", **_AMOUNT)
    gradients: float | None = option("Size of all gradients in bytes (float32).", **_AMOUNT)
    network: str | None = option(
        "Network between hosts: 1gbe-tcp, 100gbe-roce, hdr-infiniband, edr-ipoib, … [default: 25gbe-tcp, "
        "with the measured bandwidth if there is one]",
        metavar="NAME",
        read=_BETWEEN,
    )
    within: str = option(
        "Link within a host: pcie, nvlink, nvswitch, shared-memory.",
        default="pcie",
        metavar="NAME",
        read=_called(WITHIN, "link", "within a host"),
    )
    ports: int = option("Network ports per host.", default=1, metavar="N", least=1, most=64, wrong=BEYOND)
    curve: str | None = option(
        "Measured times to use: a run of bench p2p or allreduce, or a file with a message's bytes and "
        "seconds per line.",
        metavar="FILE",
    )
    ranks: tuple[int, ...] | None = option(
        "Numbers of ranks. [default: one rank, one host, two hosts, four hosts, …]",
        metavar="N,N,…",
        read=_ranks,
        multiple=False,
    )
    setup: Mapping[str, Any] = group(Setup, given=True)
    until: float | None = option(
        "Find the size at which efficiency falls below this fraction: 0.9.", metavar="FRACTION", **_PART
    )
    what_if: tuple[str, ...] = many(
        "Another network to compare with; may be given again.", metavar="NAME", read=_BETWEEN
    )
    from_specifications: bool = flag(
        "Also predict sizes beyond four times the largest measured one, from specifications."
    )
    format: str = option(
        "How to print it.", default="table", choices=("table", "markdown"), old_choices=("json",)
    )
    json: JsonOptions = group(JsonOptions)
    faults: tuple[Fault, ...] = ()


def forecast_of(options: PredictOptions) -> Forecast:
    """Return what is predicted. RequestError with all that is wrong."""
    faults = list(options.faults)
    job, curve = None, None
    with collected(faults):
        job = _job(options)
    if options.curve is not None:
        with collected(faults):
            curve = read_curve(options.curve)
    if faults or job is None:
        raise RequestError(faults)
    between = curve if isinstance(curve, Link) else BETWEEN[options.network or USUAL_NETWORK]
    network = _network(options, between)
    if options.network is None and curve is None:
        network = replace(network, between=replace(between, name=f"{USUAL_NETWORK} (assumed)"))
    given = dict(options.setup)
    per_host = given.pop("per_host", 0) or job.per_host or USUAL_SLOTS
    setup = Setup(
        network=network,
        per_host=per_host,
        fusion_bytes=ENGINE_FUSION_BYTES if given.get("algorithm") == "engine" else FUSION_BYTES,
        sharing=job.sharing,
        all_reduce=curve if isinstance(curve, MeasuredAllReduce) else None,
        **given,
    )
    return forecast(
        job,
        setup,
        options.ranks or _usual_ranks(job, per_host),
        others=tuple(_network(options, BETWEEN[name]) for name in options.what_if),
        until=options.until,
        from_specifications=options.from_specifications,
        network_known=options.network is not None or curve is not None,
    )


def _network(options: PredictOptions, between: Link) -> Network:
    within = WITHIN[options.within]
    return Network(name=between.name, between=between, within=within, ports=max(1, options.ports))


def _job(options: PredictOptions) -> MeasuredJob:
    """Return the job of SOURCE, or of --model and --rate."""
    known = None if options.model is None else models.model(options.model)
    if options.source is not None:
        return read_job(options.source, size=options.gradients, batch=options.batch, layers_of=known)
    faults: list[Fault] = []
    wrong = {fault.where for fault in options.faults}
    if options.model is None and options.gradients is None and not wrong & {"--gradients", "--model"}:
        hint = "a profile, a run of `ringleader scale` or bench train, or --model NAME --rate N --batch N"
        faults.append(Fault(where="SOURCE", what="nothing says what is trained", hint=hint))
    hints = {"rate": "samples per second of one rank", "batch": "samples of its step"}
    for name, hint in hints.items():
        if getattr(options, name) is None and f"--{name}" not in wrong:
            faults.append(Fault(where=f"--{name}", what="is missing", hint=hint))
    refuse(faults)
    if options.rate is None or options.batch is None or wrong & {"--gradients", "--model"}:
        raise RequestError(())  # what is wrong with their words is in the options
    if known is None:
        step = options.batch / options.rate
        parts = even_segments(int(options.gradients or 0), 2 / 3 * step)
        profile = Profile(name="job", batch=options.batch, before=step / 3, segments=parts, source="options")
        return MeasuredJob(profile=profile)
    unit = "sequences" if known.name.startswith("bert") else "images"
    return MeasuredJob(profile=profile_of_model(known, rate=options.rate, batch=options.batch, unit=unit))


def _usual_ranks(job: MeasuredJob, per_host: int) -> tuple[int, ...]:
    """One rank, one host, then powers of two of hosts: as far as a fit reaches, where there are points."""
    largest = max((point.ranks for point in job.points), default=0)
    sizes = {1, *(per_host * hosts for hosts in _POWERS)}
    if len(job.points) > 1:
        sizes = {size for size in sizes if size <= 4 * largest}
        is_full = [p.ranks for p in job.points if p.ranks <= per_host or p.ranks % per_host == 0]
        sizes |= set(is_full)
    return tuple(sorted(sizes))


@Command.of(
    "predict",
    PredictOptions,
    everyday="source model rate batch gradients network within ranks per_host until what_if json",
)
def command(options: PredictOptions) -> None:
    """Predict step time, rate and efficiency with more ranks or another network.

    Input is a profile of one rank (TOML or JSON), a run stored by `ringleader scale` or `ringleader bench
    train`, or --model with --rate and --batch. Every number shows whether it is fitted to measured points or
    comes from specifications.
    """
    with shown_while("fitting the model to the measured points"):
        found = forecast_of(options)
    is_json = options.json.json or options.format == "json"
    where = JsonOptions(json=is_json, json_file=options.json.json_file)
    form = "github" if options.format == "markdown" else "simple"
    inputs = [path for path in (options.source, options.curve) if path is not None]
    show(where, as_document(found), lambda: as_text(found, form), inputs)


SCHEMA = 1
"""Version of the JSON."""


def as_text(found: Forecast, form: str = "simple") -> str:
    """Return tables and sentences; ``form``: tabulate's name of a format."""
    setup, profile = found.setup, found.profile
    network = setup.network
    measured = setup.all_reduce
    across = measured is not None and measured.ranks > measured.per_host
    between = measured.link if measured is not None and across else network.between
    within = measured.link if measured is not None and not across else network.within
    head = (
        f"{profile.name}: {seconds(profile.step_seconds)} a step on one rank, {byte_size(profile.size)} of "
        f"gradients; {between.name} between hosts, {within.name} within, "
        f"{plural(setup.per_host, 'rank')} on each; {setup.algorithm}, {setup.wire} on the wire"
    )
    blocks = [head, _sizes(found, form), found.limit]
    if found.below is not None:
        bound, basis = f"{100 * found.below.bound:g}%", f"({found.below.basis})"
        stays = f"Efficiency stays at {bound} or above at all sizes tried {basis}."
        falls = f"Efficiency falls under {bound} at {found.below.ranks or 0:,} ranks {basis}."
        blocks.append(stays if found.below.ranks is None else falls)
    if found.tried:
        rows = [
            (one.change, f"{100 * one.prediction.efficiency:.1f}%", f"{100 * one.gain:+.1f}")
            for one in found.tried
        ]
        header = (f"with … at {found.rows[-1].prediction.ranks:,} ranks", "efficiency", "points")
        blocks.append(table(rows, header, form=form, align="lrr"))
    if found.fit is not None:
        blocks.append(_fitted(found.fit, form))
    blocks.append(
        "\n".join(
            f"{link.name}: {link.rate / 1e9:.2f} GB/s, {seconds(link.latency)} ({link.source})"
            for link in (between, within)
        )
    )
    return "\n\n".join(blocks) + "\n"


def _sizes(found: Forecast, form: str) -> str:
    first = found.rows[0].prediction
    alone = first.rate / first.ranks / first.efficiency
    rate = f"{found.profile.unit}/s"
    header = ("ranks", "hosts", rate, "speed-up", "efficiency", "95%", "step", "exposed", "waiting", "from")
    rows = [
        (
            f"{one.ranks:,}",
            f"{one.hosts:,}",
            thousands(one.rate),
            times(one.rate / alone),
            f"{100 * one.efficiency:.1f}%",
            span(row.low, row.high, lambda part: f"{100 * part:.1f}"),
            seconds(one.step),
            seconds(one.exposed),
            seconds(one.waiting),
            row.basis if row.measured is None else f"{row.basis}: {100 * row.measured:.1f}%",
        )
        for row in found.rows
        for one in (row.prediction,)
    ]
    return table(rows, header, form=form, align="rrrrrrrrrl")


_UNITS: Mapping[str, Callable[[float], str]] = {
    "straggler": lambda value: f"{100 * value:.2f}%",
    "slowdown": lambda value: f"{value:.2f}×",
}
"""How the value of a fitted parameter is written."""


def _fitted(fitted: Fit, form: str) -> str:
    rows = [
        (
            one.name,
            (shown := _UNITS[one.name])(one.value),
            f"{shown(one.low)} – {shown(one.high)}",
            shown(one.stated),
            "fitted" if one.fitted else "as stated: the points hardly tell it",
        )
        for one in fitted.parameters
    ]
    parameters = table(rows, ("parameter", "value", "95%", "stated", ""), form=form)
    residual = f"{100 * fitted.residual:.1f} points (root mean square)"
    return f"{parameters}\nResiduals of the measured points: {residual}."


def as_document(found: Forecast) -> dict[str, Any]:
    """Return the forecast for programs."""
    setup = asdict(found.setup)
    return {
        "schema": SCHEMA,
        "name": found.profile.name,
        "unit": found.profile.unit,
        "step_seconds": found.profile.step_seconds,
        "gradient_bytes": found.profile.size,
        "setup": setup,
        "sizes": [
            {**asdict(row.prediction), "from": row.basis, "low": row.low, "high": row.high,
             "measured": row.measured}
            for row in found.rows
        ],
        "limit": found.limit,
        "what_if": [
            {"change": one.change, "efficiency": one.prediction.efficiency, "gain": one.gain}
            for one in found.tried
        ],
        "below": None if found.below is None else asdict(found.below),
        "fit": None if found.fit is None else {
            "parameters": [asdict(p) for p in found.fit.parameters],
            "residual": found.fit.residual,
            "largest": found.fit.largest,
        },
    }  # fmt: skip
