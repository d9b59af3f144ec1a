"""The options of ``ringleader scale``, and how they become a request. Touches nothing.

`session` reads the rest: hosts, scripts and the run that is resumed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ringleader.bench import run_file
from ringleader.bench.scale.measurement import ScaleRequest, faults_of, points_of
from ringleader.bench.scale.rates import WARMUP
from ringleader.bench.scale.sizes import (
    ONE,
    default_grid,
    faults_of_hosts,
    parse_baseline,
    parse_grid,
    with_baseline,
)
from ringleader.cli.options.host_options import ON, HostOptions
from ringleader.cli.options.kubernetes_options import ClusterOptions, FollowOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.options.rank_options import RankOptions
from ringleader.cli.output import JsonOptions
from ringleader.cli.typed_command import REPLACE
from ringleader.errors import collected, refuse
from ringleader.kubernetes.jobs.pod_options import PodOptions
from ringleader.option_fields import flag, group, option
from ringleader.plan.job import Job
from ringleader.plan.job import faults_of as job_faults_of
from ringleader.scaling import IN_STEP_CHOICES, Context, Request, Run, Size
from ringleader.slurm.batch_script import BatchOptions


@dataclass(frozen=True, kw_only=True)
class ScaleOptions:
    """The options, as they were written."""

    grid: str | None = option(
        "Sizes to run, as hosts x slots. [default: doubling, to all slots or this machine's cores]",
        metavar="1x1,1x2,2x2",
    )
    repeats: int = option("Repetitions of each size.", default=3, metavar="N")
    budget: float | None = option(
        "After --repeats, repeat sizes whose speed-up has a 95% confidence interval wider than 10%, while "
        "all runs together take at most SECONDS.",
        metavar="SECONDS",
        unit="seconds",
    )
    warmup: float = option(
        "Fraction of the training time to discard as warm-up.",
        default=WARMUP,
        metavar="FRACTION",
        unreadable="is not a number",
        hint="write a part of one, for example 0.2",
    )
    strong: bool = flag("Strong scaling: keep the global batch constant.")
    global_batch: int | None = option(
        "With --strong: samples per step over all ranks; {batch} in COMMAND becomes a rank's share.",
        metavar="N",
    )
    baseline: str | None = option(
        "Size to compare with; 1x8 if the model needs 8 GPUs. [default: 1x1, one rank]", metavar="HxS"
    )
    resume: str | None = option(
        "Continue the run in DIR, or the one named by --name. --grid adds sizes. --repeats is the total "
        "number of repetitions, including earlier ones.",
        is_flag=False,
        flag_value="",
        metavar="[DIR]",
    )
    name: str | None = option("Name of the run. [default: the script's name and the time]", metavar="NAME")
    output: str = option(
        "Directory in which the run's directory is created.", "-o", "--output", default="runs", metavar="DIR"
    )
    no_uncoupled: bool = flag("Skip the runs in which the ranks train independently, without communicating.")
    in_step: str | None = option(
        "Sizes at which to also run barrier-only ranks, which synchronize at each step and exchange no "
        "gradients. [default: largest; none with --no-uncoupled]",
        choices=IN_STEP_CHOICES,
    )
    no_page: bool = flag("Do not write the HTML page, which needs ringleader[report].")
    job_per_size: bool = flag(
        "With --on slurm: a separate job for each number of nodes, one after the other, instead of one job "
        "that holds --nodes for all sizes. A run of the same --name is continued."
    )
    replace: bool = flag("Overwrite a run of the same name.", **REPLACE)
    json: JsonOptions = group(JsonOptions)
    dry_run: bool = flag("Print the runs in their order, and stop.")
    sizes: bool = flag("Print the sizes that the hosts allow, and stop.")
    hosts: HostOptions = group(HostOptions, changed={"on": ON})
    job: Job = group(Job, of="hosts scale")
    ranks: RankOptions = group(RankOptions, of="scale")
    cluster: ClusterOptions = group(ClusterOptions)
    pods: PodOptions = group(
        PodOptions, changed={"gpus": "GPUs per worker; in Slurm per node, not of the job."}
    )
    follow: FollowOptions = group(FollowOptions, of="scale")
    slurm: BatchOptions = group(
        BatchOptions,
        changed={"nodes": "Number of nodes for the largest size. Required with --on slurm."},
    )


def make_request(
    options: ScaleOptions,
    job: Job,
    request: Request,
    *,
    cores: int,
    lab: bool = False,
    image: str = "",
    stored: Run | None = None,
    most_hosts: int | None = None,
) -> ScaleRequest:
    """Return what was asked for; RequestError with everything wrong in it.

    ``cores``: CPUs of this machine; ``image``: of the Pods; ``stored``: the run to resume; ``most_hosts``: as
    in `ScaleRequest`.
    """
    faults = Faults(found=list(job_faults_of(job)))
    if not job.command:
        faults.found = [fault for fault in faults.found if fault.where != "COMMAND"]
        if not options.sizes:
            faults.add("COMMAND", "nothing to run", "ringleader scale --grid 1x1,1x2 python train.py")
    baseline, grid = ONE, tuple[Size, ...]()
    with collected(faults.found):
        baseline = parse_baseline(options.baseline)
    with collected(faults.found):
        grid = with_baseline(_grid(options, job, cores, baseline, stored), baseline)
        here = [size for size in grid if most_hosts is None or size.hosts <= most_hosts]
        faults.found += faults_of_hosts(here, job.hosts, cores=cores, oversubscribe=job.oversubscribe)
    own: dict[str, Any] = {
        "repeats": options.repeats,
        "budget": options.budget,
        "baseline": str(baseline),
        "request": request,
    }
    if stored is not None:
        points, in_step = points_of(grid, stored.points), options.in_step or stored.in_step
        run = replace(stored, points=points, in_step=in_step, failure="", **own)
    else:
        usual = "none" if options.no_uncoupled else "largest"  # one run more for each repetition
        now = run_file.name_of_now(run_file.script_name(job.command))
        run = Run(
            name=now if options.name is None else options.name,
            context=Context(command=(), lab=lab, image=image),
            points=points_of(grid),
            warmup=options.warmup,
            uncoupled=not options.no_uncoupled,
            in_step=options.in_step or usual,
            strong=options.strong,
            global_batch=options.global_batch,
            **own,
        )
    asked = ScaleRequest(job=replace(job, faults=()), run=run, most_hosts=most_hosts)
    refuse((*faults.found, *faults_of(asked)))
    return asked


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


def extended_grid(stored: Run, added: Sequence[Size]) -> tuple[Size, ...]:
    """Return the sizes of a stored run and behind them those that are new."""
    known = tuple(point.size for point in stored.points)
    return (*known, *(size for size in added if size not in known))


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
