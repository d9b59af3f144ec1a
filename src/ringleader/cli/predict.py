"""``ringleader predict``: from one rank and a network to what N ranks would do; `predict_text` prints it.

One command with many sources of a job: their options and what is wrong with them are one thought.
"""

from __future__ import annotations

import json
import statistics
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ringleader.bench import run_file
from ringleader.bench.training.measured_profile import profile_text
from ringleader.cli.doctor.stored_facts import read_facts
from ringleader.cli.output import JsonOptions, show
from ringleader.cli.predict_text import as_document, as_text
from ringleader.cli.terminal_progress import shown_while
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RequestError, collected, did_you_mean, refuse
from ringleader.fabric.facts import HostFacts
from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.recorded_job import JobRun
from ringleader.measurements.training import TrainingRun
from ringleader.option_fields import BEYOND, WrongValueError, argument, flag, group, many, option
from ringleader.predict import models
from ringleader.predict.failures import GPU_HOURS, Failures
from ringleader.predict.forecast import Forecast, forecast
from ringleader.predict.gpus import Gpu, gpu_called, gpus
from ringleader.predict.measured_job import MOST, SMALLEST, MeasuredJob, OnGpu, from_document, from_run
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
from ringleader.predict.transformers import TRANSFORMERS, of_shape
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
    if isinstance(run, Run):
        return from_run(run, path, size=size, batch=batch, layers_of=layers_of)
    given = {"--gradients": size, "--batch": batch}
    stated = [name for name, value in given.items() if value is not None]
    refuse([Fault(where=name, what=f"is in {path}", hint="leave it out") for name in stated])
    if run is None:
        return from_document(document, path, layers_of)
    if isinstance(run, TrainingRun) and (text := profile_text(run)) is not None:
        return from_document(tomllib.loads(text), path, layers_of)
    if isinstance(run, TrainingRun):
        hint = "ringleader bench train --arms ringleader,uncoupled,alone"
        raise RequestError("has no measurement of one rank alone", where=path, hint=hint)
    if isinstance(run, JobRun):
        raise RequestError("holds what happened to a job, and nothing of what is trained", where=path)
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
_LONG: Mapping[str, Any] = {"least": 0, "most": 1e9, "wrong": BEYOND}


def _called(known: Collection[str], what: str, every: str) -> Callable[[str], str]:
    """Return what refuses a name that is not known."""

    def read(name: str) -> str:
        if name not in known:
            near = did_you_mean(name, known)
            hint = f"{near}\n      {every}: {', '.join(known)}" if near else f"{every}: {', '.join(known)}"
            raise WrongValueError(f"no {what} is called {name!r}", hint)
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
        "A model by name: resnet-50, bert-large, gpt-2, llama-3-8b, mixtral-8x7b, …",
        metavar="NAME",
        read=_called(tuple(dict.fromkeys((*models.NAMES, *TRANSFORMERS))), "model", "models"),
    )
    gpu: str | None = option(
        "GPU; also sets its usual host and network: a100, h100, h200, b200, gb200, l40s, mi300x.",
        metavar="NAME",
        read=_called(tuple(gpus()), "GPU", "GPUs"),
    )
    facts: str | None = option(
        "Read the GPUs, their number per host and the ports from FILE (ringleader doctor --facts > FILE).",
        metavar="FILE",
        after="gpu",
    )
    rate: float | None = option(
        "Samples per second of one rank. [default: for a transformer, from its shape and the GPU]",
        **_AMOUNT,
    )
    batch: float | None = option("Samples per step of one rank; for a transformer, sequences.", **_AMOUNT)
    parameters: float | None = option(
        "Number of parameters, for a transformer not covered by --model.", **_AMOUNT
    )
    layers: int | None = option("Number of its layers.", metavar="N", least=1, most=10_000, wrong=BEYOND)
    hidden: int | None = option("Its hidden size.", metavar="N", least=1, most=1_000_000, wrong=BEYOND)
    sequence: int | None = option(
        "Tokens per sequence. [default: the model's]", metavar="N", least=1, most=10_000_000, wrong=BEYOND
    )
    mfu: float | None = option(
        "Fraction of a GPU's peak that the model reaches. [default: from published benchmark results]",
        metavar="FRACTION",
        least=1e-6,
        most=1,
        wrong="{} is not a part of 1",
    )
    gradients: float | None = option("Size of all gradients in bytes: 4 × parameters (float32).", **_AMOUNT)
    network: str | None = option(
        "Network between hosts: 1gbe-tcp, 100gbe-roce, hdr-infiniband, edr-ipoib, … [default: that of "
        "--facts or --gpu; else 25gbe-tcp, at the measured bandwidth if there is one]",
        metavar="NAME",
        read=_BETWEEN,
    )
    within: str | None = option(
        "Link within a host: pcie, nvlink, nvswitch, shared-memory. [default: the GPU's, else pcie]",
        metavar="NAME",
        read=_called(WITHIN, "link", "within a host"),
    )
    ports: int | None = option(
        "Network ports per host, also for --what-if. [default: 1 for a named network; otherwise as in "
        "--facts or the GPU's usual host]",
        metavar="N",
        least=1,
        most=256,
        wrong=BEYOND,
    )
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
    commit: float | None = option(
        "Also predict what failures cost; SECONDS: time of one checkpoint or elastic commit.",
        metavar="SECONDS",
        **_LONG,
    )
    recovery: float = option(
        "Seconds from a failure until training continues.", default=0.0, metavar="SECONDS", **_LONG
    )
    commit_every: float = option(
        "Seconds of training between commits. [default: the interval that loses the least time]",
        default=0.0,
        metavar="SECONDS",
        **_LONG,
    )
    mtbf: float = option(
        "Mean hours between failures of one GPU. [default: that of the 16,384 H100s that trained Llama 3]",
        default=GPU_HOURS,
        metavar="HOURS",
        least=1e-3,
        most=1e12,
        wrong=BEYOND,
    )
    until: float | None = option(
        "Find the size at which efficiency falls below this fraction: 0.9.", metavar="FRACTION", **_PART
    )
    what_if: tuple[str, ...] = many(
        "Another network to compare with. Can be repeated.", metavar="NAME", read=_BETWEEN
    )
    from_specifications: bool = flag(
        "Also predict sizes more than four times the largest measured size, using hardware specifications."
    )
    format: str = option(
        "How to print it.", default="table", choices=("table", "markdown"), old_choices=("json",)
    )
    json: JsonOptions = group(JsonOptions)
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Place:
    """What the ranks run on, as options, facts or a preset tell."""

    gpu: Gpu | None = None
    per_host: int = 0
    ports: int = 0
    between: Link | None = None


def _place(options: PredictOptions) -> Place:
    """Return what --facts or --gpu tell. RequestError: no GPU that has a preset."""
    if options.facts is None:
        if options.gpu is None:
            return Place()
        gpu = gpus()[options.gpu]
        return Place(gpu=gpu, per_host=gpu.per_host, ports=gpu.ports, between=gpu.between())
    hosts = read_facts([options.facts], read_text, "--facts")
    return place_of(next(iter(hosts.values())), options.facts, options.gpu)


def place_of(facts: HostFacts, where: str, name: str | None) -> Place:
    """Return what a host's facts tell: its GPUs, and its active RDMA ports of the most frequent rate."""
    products = [gpu.name for gpu in facts.gpus]
    gpu = gpus()[name] if name is not None else next(filter(None, map(gpu_called, products)), None)
    if gpu is None:
        what = f"has no GPU that is known: {', '.join(dict.fromkeys(products)) or 'none'}"
        hint = f"--gpu {'|'.join(gpus())}"
        if near := next(filter(None, (gpu_called(product, any_board=True) for product in products)), None):
            hint = f"--gpu {near.name} is the nearest, with another board, other links and another clock"
        raise RequestError(what, where=where, hint=hint)
    if memory := min((one.memory for one in facts.gpus if one.memory), default=0):
        gpu = replace(gpu, memory=float(memory))
    rates = [
        port.rate
        for device in facts.rdma_devices
        for port in device.ports
        if port.state == "ACTIVE" and port.rate
    ]
    if not rates:
        return Place(gpu=gpu, per_host=len(products))
    rate = statistics.mode(rates)
    known = gpu.between() or BETWEEN["ndr-infiniband"]
    between = replace(
        known,
        name=f"{rate / 1e9:.0f} Gbit/s RDMA",
        bandwidth=rate / 8,
        source=f"rate: {where}; {known.source.partition('; ')[2]}",
    )
    return Place(gpu=gpu, per_host=len(products), ports=rates.count(rate), between=between)


def forecast_of(options: PredictOptions) -> Forecast:
    """Return what is predicted. RequestError with all that is wrong."""
    faults = list(options.faults)
    job, curve, place = None, None, Place()
    with collected(faults):
        place = _place(options)
    with collected(faults):
        job = _job(options, place.gpu)
    if options.curve is not None:
        with collected(faults):
            curve = read_curve(options.curve)
    if faults or job is None:
        raise RequestError(faults)
    between = curve if isinstance(curve, Link) else place.between
    if options.network is not None or between is None:
        between = curve if isinstance(curve, Link) else BETWEEN[options.network or USUAL_NETWORK]
    network = _network(options, between, place, named=options.network is not None)
    if options.network is None and curve is None and place.between is None:
        network = replace(network, between=replace(between, name=f"{USUAL_NETWORK} (assumed)"))
    given = dict(options.setup)
    per_host = given.pop("per_host", 0) or job.per_host or place.per_host or USUAL_SLOTS
    preset: dict[str, Any] = {}
    if place.gpu is not None:
        preset = {"algorithm": "nccl", "contention": place.gpu.contention}
    if job.on_gpu is not None:
        preset["batch"] = options.batch or 1.0
    setup = Setup(
        network=network,
        per_host=per_host,
        fusion_bytes=ENGINE_FUSION_BYTES if given.get("algorithm") == "engine" else FUSION_BYTES,
        sharing=job.sharing,
        all_reduce=curve if isinstance(curve, MeasuredAllReduce) else None,
        **(preset | given),
    )
    refuse(_without_effect(options, job, curve))
    failures = None
    if options.commit is not None:
        failures = Failures(
            hours=options.mtbf,
            commit=options.commit,
            recovery=options.recovery,
            interval=options.commit_every,
        )
    return forecast(
        job,
        setup,
        options.ranks or _usual_ranks(job, per_host, setup.tensor * setup.pipeline),
        others=tuple(_network(options, BETWEEN[name], place, named=True) for name in options.what_if),
        until=options.until,
        from_specifications=options.from_specifications,
        network_known=options.network is not None or curve is not None or place.between is not None,
        failures=failures,
    )


_OF_TRANSFORMERS = ("tensor", "pipeline", "recompute", "mfu", "sequence", "parameters", "layers", "hidden")
_DEFAULTS = {field.name: field.default for kind in (PredictOptions, Setup) for field in fields(kind)}


def _without_effect(
    options: PredictOptions, job: MeasuredJob, curve: Link | MeasuredAllReduce | None
) -> list[Fault]:
    """Return a fault for each option that was given and would change nothing beside the others."""
    given, drop = {**vars(options), **options.setup}, "leave it out"
    by_shape, named = job.on_gpu is not None, options.model
    shares, serves = given.get("strategy", "ddp") != "ddp", given.get("algorithm") == "servers"
    shape = "--gpu and --model, or --parameters, --layers and --hidden, without a profile and --rate"
    is_known = f"is that of {named}"
    costs = ("recovery", "commit_every", "mtbf")
    rules = (
        (not by_shape, "is for transformers whose rate follows from their shape", shape, _OF_TRANSFORMERS),
        (by_shape and named, is_known, drop, ("parameters", "layers", "hidden", "gradients")),
        (by_shape and not named, "follows from --parameters", drop, ("gradients",)),
        (options.source, f"is in {options.source}", drop, ("rate",)),
        (not options.source and not by_shape and named in models.NAMES, is_known, drop, ("gradients",)),
        (not shares, "is for strategies that share the state", "--strategy fsdp", ("shard_ranks",)),
        (not serves, "is for parameter servers", "--algorithm servers", ("servers", "servers_apart")),
        (options.commit is None, "is for what failures cost", "--commit SECONDS", costs),
        (isinstance(curve, Link), "is what --curve measured", "leave one of them out", ("network",)),
    )
    return [
        Fault(where=f"--{name.replace('_', '-')}", what=reason, hint=hint)
        for applies, reason, hint, names in rules
        for name in names
        if applies and given.get(name) is not None and given[name] != _DEFAULTS[name]
    ]


def _network(options: PredictOptions, between: Link, place: Place, *, named: bool) -> Network:
    """Return the network with these links between hosts; one that somebody ``named`` has one port."""
    ports = options.ports or (0 if named else place.ports) or 1
    if place.gpu is not None and options.within is None:
        return place.gpu.network(between, ports)
    within = WITHIN[options.within or "pcie"]
    return Network(name=between.name, between=between, within=within, ports=ports)


def _job(options: PredictOptions, gpu: Gpu | None) -> MeasuredJob:
    """Return the job of SOURCE, or of --model and --rate, or of a transformer on a GPU."""
    known = models.model(options.model) if options.model in models.NAMES else None
    if options.source is not None:
        if options.model is not None and known is None:
            what = f"does not say how the gradients of {options.source} are spread"
            raise RequestError(what, where="--model", hint=f"without it, or {', '.join(models.NAMES)}")
        return read_job(options.source, size=options.gradients, batch=options.batch, layers_of=known)
    faults: list[Fault] = []
    wrong = {fault.where for fault in options.faults}
    shape = {name: getattr(options, name) for name in ("parameters", "layers", "hidden")}
    if options.rate is None and (
        options.model in TRANSFORMERS or any(value is not None for value in shape.values())
    ):
        return _transformer(options, gpu, shape)
    if options.model is None and options.gradients is None and not wrong & {"--gradients", "--model"}:
        hint = "a profile, a run of `ringleader scale` or bench train, --gpu NAME --model NAME, "
        hint += "or --model NAME --rate N --batch N"
        faults.append(Fault(where="SOURCE", what="nothing says what is trained", hint=hint))
    hints = {"rate": "samples per second of one rank", "batch": "samples of its step"}
    for name, hint in hints.items():
        if getattr(options, name) is None and f"--{name}" not in wrong:
            faults.append(Fault(where=f"--{name}", what="is missing", hint=hint))
    refuse(faults)
    if options.rate is None or options.batch is None or wrong & {"--gradients", "--model"}:
        raise RequestError(())  # what is wrong with their words is in the options
    if known is None:
        size = options.gradients or (4 * TRANSFORMERS[options.model].parameters if options.model else 0)
        step = options.batch / options.rate
        parts = even_segments(int(size), 2 / 3 * step)
        name = options.model or "job"
        profile = Profile(name=name, batch=options.batch, before=step / 3, segments=parts, source="options")
        return MeasuredJob(profile=profile)
    unit = "sequences" if known.name.startswith("bert") else "images"
    return MeasuredJob(profile=profile_of_model(known, rate=options.rate, batch=options.batch, unit=unit))


def _transformer(options: PredictOptions, gpu: Gpu | None, shape: Mapping[str, Any]) -> MeasuredJob:
    faults = []
    if gpu is None:
        hint = f"{', '.join(gpus())}; or --facts FILE, or --rate N --batch N of a measurement"
        faults.append(Fault(where="--gpu", what="is missing", hint=hint))
    elif not gpu.gemm and options.mfu is None:
        what = f"is missing: no published row has the speed of transformers on {gpu.name}"
        faults.append(Fault(where="--mfu", what=what, hint="0.4, or --rate N of a measurement"))
    if options.model is None:
        hint = "--parameters 7e9 --layers 32 --hidden 4096"
        faults += [
            Fault(where=f"--{name}", what="is missing", hint=hint)
            for name, value in shape.items()
            if value is None
        ]
    refuse(faults)
    assert gpu is not None
    if options.model is not None:
        model = TRANSFORMERS[options.model]
    else:
        model = of_shape(shape["parameters"], shape["layers"], shape["hidden"], options.sequence or 2048)
    if options.sequence is not None:
        model = replace(model, sequence=options.sequence)
    on_gpu = OnGpu(model=model, gpu=gpu, mfu=options.mfu)
    setup = Setup(network=gpu.network(BETWEEN[USUAL_NETWORK], 1), batch=options.batch or 1.0)
    return MeasuredJob(profile=on_gpu.profile(setup, 1), on_gpu=on_gpu)


def _usual_ranks(job: MeasuredJob, per_host: int, parts: int) -> tuple[int, ...]:
    """One rank, one host, then powers of two of hosts: as far as a fit reaches, where there are points.

    ``parts``: ranks that share a model.
    """
    largest = max((point.ranks for point in job.points), default=0)
    sizes = {1, *(size for hosts in _POWERS if (size := per_host * hosts) % parts == 0)}
    if len(job.points) > 1:
        sizes = {size for size in sizes if size <= 4 * largest}
        is_full = [p.ranks for p in job.points if p.ranks <= per_host or p.ranks % per_host == 0]
        sizes |= set(is_full)
    return tuple(sorted(sizes))


@Command.of(
    "predict",
    PredictOptions,
    everyday="source model gpu rate batch gradients network within ranks per_host strategy until what_if "
    "json",
)
def command(options: PredictOptions) -> None:
    """Predict step time, rate and efficiency with more ranks or another network.

    The prediction starts from one of: a single-rank profile (profile.toml of `bench train`, or your own), a
    run stored by `scale` or `bench train`, --model with --gpu, or --model with --rate and --batch. Each row
    says whether its numbers are given, measured, fitted, or from specifications.
    """
    with shown_while("fitting the model to the measured points"):
        found = forecast_of(options)
    is_json = options.json.json or options.format == "json"
    where = JsonOptions(json=is_json, json_file=options.json.json_file)
    form = "github" if options.format == "markdown" else "simple"
    inputs = [path for path in (options.source, options.curve, options.facts) if path is not None]
    show(where, as_document(found), lambda: as_text(found, form), inputs)
