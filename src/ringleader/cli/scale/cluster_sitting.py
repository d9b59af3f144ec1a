"""The command line of ``ringleader scale --on kubernetes``: the same sizes, each a job on a cluster."""

from __future__ import annotations

import os
from dataclasses import replace

from ringleader.bench.grid import Size, parse_baseline, parse_grid
from ringleader.bench.resumption import host_words
from ringleader.bench.scale import Scale, job_of
from ringleader.bench.turn_order import turns
from ringleader.cli.kubernetes.run_job import Where
from ringleader.cli.options.kubernetes_options import JobOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.scale.cluster_jobs import ClusterJobs, check_sizes
from ringleader.cli.scale.scale_options import ScaleOptions, Sitting, make_scale, stamp
from ringleader.errors import RequestError, collected
from ringleader.job import Host, Job
from ringleader.scaling import Request, Run

START_TIMEOUT = 900.0
"""Seconds that the Pods of a size may take to run: a sweep must not wait for ever for one that never fits."""


def cluster_sitting(options: ScaleOptions, words: tuple[str, ...], stored: Run | None) -> Sitting:
    """Return what is measured on Kubernetes; RequestError with every fault of every size's job."""
    faults = Faults(found=list(options.job.faults))
    on: Where = "pods" if options.hosts.on == "pods" else "kubernetes"
    if options.grid is None and stored is None:
        faults.add("--grid", "is needed on Kubernetes", "name sizes as workers x ranks: --grid 1x1,1x2,2x2")
        options = replace(options, grid="1x1")
    jobs, sizes = _jobs(on, options), _sizes(options, stored)
    threads = stored.context.threads if stored is not None else _threads(options, sizes)
    job = Job(command=options.job.command, hosts=_workers(sizes), bind="none", threads=threads)
    wanted = None
    with collected(faults.found):
        coupled = replace(options, no_uncoupled=True, in_step=None)
        wanted = make_scale(coupled, job, cores=1, stamp=stamp(), lab=False, stored=stored)
    with collected(faults.found):
        check_sizes(jobs, _jobs_of_sizes(wanted, job), os.environ)
    if wanted is None or faults.found:
        raise RequestError(faults.found)
    request = Request(
        options=words,
        workdir=options.job.workdir or "the image's",
        hosts=host_words(job.hosts),
    )
    wanted = replace(wanted, request=request, image=options.pods.image or "")
    return Sitting(wanted=wanted, stored=stored, cluster=jobs)


def _jobs_of_sizes(wanted: Scale | None, job: Job) -> list[Job]:
    """Return a job of each size; where the sizes are not known, one that shows what else is wrong."""
    if wanted is None:
        return [replace(job, np=1, hosts=job.hosts[:1])]
    return [job_of(turn, wanted) for turn in turns(wanted.grid, 1, uncoupled=False)]


def _jobs(on: Where, options: ScaleOptions) -> ClusterJobs:
    """Return what starts the sizes' jobs."""
    asked = options.job
    job = Job(timeout=asked.timeout, workdir=asked.workdir, extra_mpirun_args=asked.extra_mpirun_args)
    return ClusterJobs(
        on=on,
        cluster=options.cluster,
        options=JobOptions(
            job=job,
            ranks=replace(options.ranks, all_gpus=False),
            pods=options.pods,
            clean_pod_policy="None",  # at the end they tell their nodes; then all is deleted
        ),
        follow=options.follow,
        start_timeout=options.follow.start_timeout or START_TIMEOUT,
    )


def _sizes(options: ScaleOptions, stored: Run | None) -> list[Size]:
    """Return all sizes that are meant; what is wrong with them is found later."""
    sizes = [Size(hosts=point.hosts, slots=point.slots) for point in (stored.points if stored else ())]
    faults = Faults()
    with collected(faults.found):
        sizes += parse_grid(options.grid or "1x1")
    with collected(faults.found):
        sizes.append(parse_baseline(options.baseline or "1x1"))
    return sizes


def _workers(sizes: list[Size]) -> tuple[Host, ...]:
    """Return workers that stand for hosts: as many as the largest size needs, with room for its ranks."""
    slots = max(size.slots for size in sizes)
    return tuple(
        Host(name=f"worker-{index}", slots=slots) for index in range(max(size.hosts for size in sizes))
    )


def _threads(options: ScaleOptions, sizes: list[Size]) -> int | None:
    """Return OMP_NUM_THREADS, the same at every size: a share of ``--cpu``, where nothing else is said."""
    cpu = options.pods.cpu or ""
    share = max(1, int(cpu) // max(size.slots for size in sizes)) if cpu.isdigit() else None
    return options.job.threads or share
