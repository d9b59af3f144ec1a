"""The command line of ``ringleader scale``, and the stored run it goes on with, become a ``Sitting``."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from ringleader.bench import run_file
from ringleader.bench.resumption import changed_hosts, changed_request, host_words
from ringleader.cli.options.kubernetes_options import PLACES
from ringleader.cli.run.command import check_ssh_files, read_job
from ringleader.cli.scale.resume_options import kept_words, resumed_options
from ringleader.cli.scale.scale_options import (
    ScaleOptions,
    Sitting,
    make_scale,
    misplaced_options,
    stamp,
    threads_for,
)
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.errors import RefusedError, RequestError
from ringleader.job import Job
from ringleader.ranks.processors import usable_cpus
from ringleader.ranks.training_progress import cpu_model
from ringleader.scaling import Request, Run


def cores_here() -> int:
    """Return how many CPUs this process may keep busy."""
    return usable_cpus()


def read_sitting(options: ScaleOptions, line: ProgressLine) -> Sitting:
    """Read the command line to the end, and the run to resume; RequestError with all faults of each step."""
    context = click.get_current_context()
    if options.resume is None:
        misplaced = misplaced_options(context, options.hosts.on)
        if misplaced:
            raise RequestError(misplaced)
        return _sitting(options, kept_words(context), line)
    directory = _resumed_directory(options)
    stored = run_file.read(directory)
    if not options.dry_run and not os.access(directory, os.W_OK):
        raise RefusedError("cannot be written to", where=str(directory))
    options, words = resumed_options(context, stored)
    sitting = replace(_sitting(options, words, line, stored), directory=directory)
    faults = changed_request(stored, sitting.wanted, same_hosts=not sitting.in_allocation)
    if faults:
        raise RequestError(faults)
    return sitting


def _sitting(
    options: ScaleOptions, words: tuple[str, ...], line: ProgressLine, stored: Run | None = None
) -> Sitting:
    """``words``: the options to be kept with the run."""
    if options.hosts.on in PLACES:
        from ringleader.cli.scale.cluster_sitting import cluster_sitting

        return cluster_sitting(options, words, stored)
    where = options.hosts
    job, chosen = read_job(options.job, options.ranks, where, environ=os.environ, say=line.keep)
    check_ssh_files(job)
    wanted = make_scale(options, job, cores=cores_here(), stamp=stamp(), lab=where.wants_lab, stored=stored)
    script, digest = script_of(job)
    request = Request(
        options=words,
        workdir=job.workdir,
        hosts=host_words(job.hosts),
        script=script,
        script_digest=digest,
    )
    return Sitting(
        wanted=replace(wanted, cpu=cpu_model(), request=request),
        stored=stored,
        in_allocation=chosen.allocation is not None,
    )


def _resumed_directory(options: ScaleOptions) -> Path:
    if options.resume and options.name is not None:
        raise RequestError("both name the run", where="--resume DIR and --name", hint="leave out one of them")
    if options.resume:
        given = Path(options.resume)
        return given.parent if given.name == run_file.FILE else given
    if options.name is None:
        hint = "ringleader scale --resume runs/NAME, or --name NAME --resume"
        raise RequestError("it is not said which run is meant", where="--resume", hint=hint)
    return Path(options.output) / options.name


def script_of(job: Job) -> tuple[str, str]:
    """Return the file among the command's words that is trained, and its SHA-256; empty: none is here."""
    for word in job.command:
        path = Path(job.workdir, word)
        if word.endswith((".py", ".sh")) and path.is_file():
            try:
                return word, hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError:
                return word, ""
    return "", ""


def with_threads(sitting: Sitting, line: ProgressLine) -> Sitting:
    """Look at all hosts before anything long starts; give every rank the same threads at every size."""
    wanted, stored = sitting.wanted, sitting.stored
    if sitting.cluster is not None:
        return sitting
    cores = {"localhost": cores_here()}
    if wanted.job.hosts:
        from ringleader.launch.host_probe.probe import probe

        found = probe(wanted.job, environ=os.environ, progress=line.show)
        if found.ssh is not None:
            found.ssh.close()
        cores = {facts.host.name: len(facts.cpus) for facts in found.facts}
    if stored is None:
        threads = threads_for(wanted.job, wanted.grid, list(cores.values()), os.environ)
    else:
        threads = stored.context.threads  # a larger size must not change those of the others
        _check_hosts(stored, cores, by_name=not sitting.in_allocation)
    return replace(sitting, wanted=replace(wanted, job=replace(wanted.job, threads=threads)))


def _check_hosts(stored: Run, cores: Mapping[str, int], *, by_name: bool) -> None:
    """Raise RequestError where hosts have other cores than those that were measured."""
    if not by_name:  # a batch system gave others: each stands for one of those before
        cores = dict(zip((host.name for host in stored.context.hosts), cores.values(), strict=False))
    faults = changed_hosts(stored, cores)
    if faults:
        raise RequestError(faults)
