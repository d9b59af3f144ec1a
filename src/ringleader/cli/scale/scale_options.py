"""The options of ``ringleader scale`` and how they become a ``Scale``. Touches nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import PurePath

import click

from ringleader.bench.grid import (
    ONE,
    Size,
    check_grid,
    default_grid,
    parse_baseline,
    parse_grid,
    with_baseline,
)
from ringleader.bench.rates import WARMUP
from ringleader.bench.resumption import extended_grid
from ringleader.bench.scale import Scale, faults_of
from ringleader.bench.turn_order import IN_STEP_CHOICES
from ringleader.cli.json_output import JSON_OPTIONS, JsonOptions
from ringleader.cli.options.host_options import HOST_OPTIONS, HostOptions
from ringleader.cli.options.kubernetes_options import ClusterOptions, PodOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.options.rank_options import RUN_OPTIONS, RunOptions
from ringleader.cli.scale.pod_options import ON, POD_OPTIONS
from ringleader.cli.typed_command import REPLACE, Option
from ringleader.errors import Fault, RequestError, collected
from ringleader.job import Host, Job
from ringleader.job import faults_of as job_faults_of
from ringleader.scaling import Run


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """Options of ``run`` that mean the same here."""

    command: tuple[str, ...] = ()
    oversubscribe: bool = False
    share_gpus: bool = False
    all_gpus: bool = False
    own_gpu: bool = False
    bind: str = "auto"
    threads: str | None = None
    x: tuple[str, ...] = ()
    env_file: tuple[str, ...] = ()
    as_horovod: bool = False
    require: tuple[str, ...] = ()
    no_settings: bool = False
    consistency_check: str | None = None
    timeout: str | None = None
    grace: str | None = None
    lost_after: str | None = None
    workdir: str | None = None

    def of_run(self) -> RunOptions:
        """Return them as the options of ``run``."""
        return RunOptions(**vars(self))


@dataclass(frozen=True, kw_only=True)
class ScaleOptions:
    """The options, as they were written."""

    grid: str | None = None
    repeats: str = "3"
    budget: str | None = None
    warmup: str = str(WARMUP)
    strong: bool = False
    global_batch: str | None = None
    baseline: str | None = None
    resume: str | None = None
    name: str | None = None
    output: str = "runs"
    no_uncoupled: bool = False
    in_step: str | None = None
    no_page: bool = False
    replace: bool = False
    dry_run: bool = False
    sizes: bool = False
    json: JsonOptions = field(default_factory=JsonOptions)
    hosts: HostOptions = field(default_factory=HostOptions)
    shared: SharedOptions = field(default_factory=SharedOptions)
    cluster: ClusterOptions = field(default_factory=ClusterOptions)
    pods: PodOptions = field(default_factory=PodOptions)
    operator_image: str | None = None


EVERYDAY = (
    *(
        "grid",
        "repeats",
        "budget",
        "strong",
        "global_batch",
        "baseline",
        "resume",
        "name",
        "output",
        "replace",
        "json",
        "json_file",
        "dry_run",
        "sizes",
        "hosts",
        "lab",
        "on",
    ),
    *("hostfile", "oversubscribe", "x", "timeout", "no_page", "no_uncoupled"),
)
"""Options of the short help."""

SCALE_OPTIONS: tuple[click.Parameter, ...] = (
    Option(
        ["--grid"],
        metavar="1x1,1x2,2x2",
        help="Sizes, hosts x slots. [default: doubling, up to all slots]",
    ),
    Option(["--repeats"], default="3", show_default=True, metavar="N", help="Repetitions of each size."),
    Option(
        ["--budget"],
        metavar="SECONDS",
        help="Add repetitions for up to SECONDS, until 95 % intervals are at most 10 % wide.",
    ),
    Option(
        ["--warmup"],
        default=str(WARMUP),
        show_default=True,
        metavar="PART",
        help="Part of the training time left out at its beginning.",
    ),
    Option(
        ["--strong"],
        is_flag=True,
        help="Strong scaling: the global batch stays the same.",
    ),
    Option(
        ["--global-batch"],
        metavar="N",
        help="With --strong: samples of a step over all ranks; {batch} in COMMAND is a rank's share.",
    ),
    Option(
        ["--baseline"],
        metavar="HxS",
        help="Size that the others are measured against. [default: 1x1, one rank]",
    ),
    Option(
        ["--resume"],
        is_flag=False,
        flag_value="",
        metavar="[DIR]",
        help="Go on with the run in DIR or of --name; --grid adds sizes, --repeats repetitions.",
    ),
    Option(["--name"], metavar="NAME", help="Name of the run. [default: script and time]"),
    Option(
        ["-o", "--output", "output"],
        default="runs",
        show_default=True,
        metavar="DIR",
        help="Directory the run's own is put in.",
    ),
    Option(
        ["--no-uncoupled"], is_flag=True, help="Leave out the runs of as many ranks that exchange nothing."
    ),
    Option(
        ["--in-step"],
        type=click.Choice(IN_STEP_CHOICES),
        help="Sizes at which to run also ranks that meet once a step and exchange nothing. "
        "[default: largest; none with --no-uncoupled]",
    ),
    Option(["--no-page"], is_flag=True, help="Make no HTML page (needs no ringleader[report])."),
    Option([*REPLACE], is_flag=True, help="Write over a run of the same name."),
    *JSON_OPTIONS,
    Option(["--dry-run"], is_flag=True, help="Print the runs in their order and stop."),
    Option(["--sizes"], is_flag=True, help="Print the sizes that the hosts there take and stop."),
)


def parameters() -> list[click.Parameter]:
    """Return all parameters of the command."""
    names = {part.name for part in fields(SharedOptions)}
    shared = [parameter for parameter in RUN_OPTIONS if parameter.name in names]
    hosts = [ON if option.name == "on" else option for option in HOST_OPTIONS]
    return [*SCALE_OPTIONS, *hosts, *shared, *POD_OPTIONS]


def make_scale(
    options: ScaleOptions, job: Job, *, cores: int, stamp: str, lab: bool, stored: Run | None = None
) -> Scale:
    """Return what was asked for; RequestError with everything wrong in it.

    ``cores``: CPUs of this machine; ``stamp``: a time as file names have it; ``stored``: the run to resume.
    """
    faults = Faults(found=list(job_faults_of(job)))
    if not job.command:
        faults.found = [fault for fault in faults.found if fault.where != "COMMAND"]
        if not options.sizes:
            faults.add("COMMAND", "nothing to run", "ringleader scale --grid 1x1,1x2 python train.py")
    repeats = faults.whole("--repeats", options.repeats)
    try:
        warmup = float(options.warmup)
    except ValueError:
        faults.add("--warmup", f"{options.warmup!r} is not a number", "write a part of one, for example 0.2")
        warmup = WARMUP
    batch = faults.whole("--global-batch", options.global_batch)
    baseline, grid = ONE, tuple[Size, ...]()
    with collected(faults.found):
        baseline = ONE if options.baseline is None else parse_baseline(options.baseline)
    with collected(faults.found):
        grid = with_baseline(_grid(options, job, cores, baseline, stored), baseline)
        check_grid(grid, job.hosts, oversubscribe=job.oversubscribe)
        _check_local(grid, job, cores)
    asked = Scale(
        name=_name(options, job, stamp, stored),
        job=replace(job, faults=()),
        grid=grid,
        repeats=1 if repeats is None else repeats,
        warmup=warmup,
        budget=faults.seconds("--budget", options.budget),
        uncoupled=not options.no_uncoupled,
        in_step=options.in_step or _in_step(options, stored),
        strong=options.strong,
        global_batch=batch,
        baseline=str(baseline),
        lab=lab,
    )
    faults.found += faults_of(asked)
    if faults.found:
        raise RequestError(faults.found)
    return asked


def _in_step(options: ScaleOptions, stored: Run | None) -> str:
    """Return where ranks in step are measured if nothing is said: one run more for each repetition."""
    if stored is not None:
        return stored.in_step
    return "none" if options.no_uncoupled else "largest"


def _grid(
    options: ScaleOptions, job: Job, cores: int, baseline: Size, stored: Run | None
) -> tuple[Size, ...]:
    if stored is not None:
        return extended_grid(stored, () if options.grid is None else parse_grid(options.grid))
    if options.grid is not None:
        return parse_grid(options.grid)
    # Against a whole host, sizes within one say little.
    sizes = default_grid(job.hosts, cores)
    return tuple(size for size in sizes if size.hosts >= baseline.hosts and size.slots >= baseline.slots)


def _name(options: ScaleOptions, job: Job, stamp: str, stored: Run | None) -> str:
    if stored is not None:
        return stored.name
    return options.name if options.name is not None else f"{script_name(job.command)}-{stamp}"


def _check_local(grid: Sequence[Size], job: Job, cores: int) -> None:
    """Raise RequestError where this machine alone has too few cores for a size."""
    if job.hosts or job.oversubscribe:
        return
    found = [
        Fault(
            where="--grid",
            what=f"{size} needs {size.slots} cores, this machine has {cores}",
            hint="ask for a smaller size, or add --oversubscribe (it measures crowding, not scaling)",
        )
        for size in grid
        if size.slots > cores
    ]
    if found:
        raise RequestError(found)


def script_name(command: Sequence[str]) -> str:
    """Return a short name for what is run: the first script among the words, else the program."""
    scripts = [word for word in command if word.endswith((".py", ".sh"))]
    word = PurePath((scripts or list(command) or ["run"])[0]).stem
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", word).strip("-.") or "run"


def threads_for(
    job: Job, grid: Sequence[Size], cores: Sequence[int], environ: Mapping[str, str]
) -> int | None:
    """Return OMP_NUM_THREADS that is the same at every size: the user's own where it is a number.

    A rank that is alone on a host would otherwise get all its cores, and one rank would be measured with
    more threads than each of several: that is a comparison of thread counts, not of rank counts.
    ``None`` where the user's own is not a number (``4,2`` for nested regions): it reaches the ranks as it is.
    """
    if job.threads is not None:
        return job.threads
    users = dict(job.env).get("OMP_NUM_THREADS", environ.get("OMP_NUM_THREADS"))
    if users is not None:
        return int(users) if re.fullmatch(r"[1-9][0-9]{0,5}", users) else None
    return max(1, min(cores, default=1) // max(size.slots for size in grid))


def hosts_text(hosts: Sequence[Host], size: Size) -> str:
    """``h1:2,h2:2`` of a size."""
    return ",".join(f"{host.name}:{size.slots}" for host in hosts) or f"localhost:{size.slots}"
