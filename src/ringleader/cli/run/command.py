"""``ringleader run``: options become a job, the job is launched, and its outcome is reported."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ringleader import __version__
from ringleader.cli import interrupts
from ringleader.cli.options.host_options import (
    ON,
    Chosen,
    HostOptions,
    allocation_text,
    bare_hosts_text,
    choose_hosts,
    is_to_be_sent,
    overridden,
)
from ringleader.cli.options.kubernetes_options import (
    OF_SLURM,
    PLACES,
    SECTION,
    KubernetesOptions,
    is_for_clusters,
    means_nothing,
    misplaced_options,
)
from ringleader.cli.options.option_checks import Faults, read_ranks
from ringleader.cli.options.rank_options import RankOptions, elastic_options, make_job
from ringleader.cli.output import OF_A_JOB, JsonOptions, result_to
from ringleader.cli.typed_command import Command, faults_of_words, is_full_help
from ringleader.errors import RequestError, RingleaderError
from ringleader.option_fields import flag, group, option
from ringleader.plan.batch_system import slurm_job_id
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.job import Job, check
from ringleader.render.rank_environment import search_path
from ringleader.slurm.batch_script import BatchOptions
from ringleader.text_files import read_text
from ringleader.value_class import dataclass

if TYPE_CHECKING:
    from ringleader.lab.saved_state import Lab
    from ringleader.launch.elastic_history import ElasticHistory
    from ringleader.launch.outcome import Outcome, RankEnd
    from ringleader.launch.rank_output import Label
    from ringleader.metrics import Sample

FORMAT = 1
"""Grows when a reader must change."""


def outcome_json(outcome: Outcome, job: Job) -> dict[str, Any]:
    """Return the outcome as JSON values. Seconds are seconds; ``null`` is what does not apply."""
    from ringleader.dataclass_json import document

    plan = outcome.plan
    failure = outcome.first_failure
    return {
        "format": FORMAT,
        "ringleader": __version__,
        "command": list(job.command),
        "exit_code": outcome.exit_code,
        "whose": outcome.whose,
        "reason": outcome.reason,
        "seconds": outcome.seconds,
        "mpi": {"family": outcome.mpi.family, "version": outcome.mpi.version, "mpirun": outcome.mpi.mpirun},
        "hosts": [
            {"name": facts.host.name, "hostname": facts.hostname, "ranks": count}
            for facts, count in zip(plan.hosts, plan.counts(), strict=True)
        ],
        "plan": [
            {
                "rank": place.rank,
                "host": plan.hosts[place.host_index].host.name,
                "local_rank": place.local_rank,
                "cpus": list(place.cpus),
                "threads": place.threads,
                "gpu": place.gpu,
            }
            for place in plan.ranks
        ],
        "ranks": [_end(end) for end in outcome.ends],
        "restarts": [vars(restart) for restart in outcome.restarts],
        "first_failure": None if failure is None else _end(failure),
        **({} if outcome.elastic is None else {"elastic": _history(outcome.elastic)}),
        "consistency": [{k: v for k, v in one.items() if k != "kind"} for one in outcome.differences],
        "hang": None if outcome.hang is None else document(outcome.hang),
        "stragglers": [vars(one) for one in outcome.stragglers],
        "rate": None if outcome.rate is None else rate_json(outcome.rate),
        "proof": None if outcome.proof is None else document(outcome.proof),
        **({"host_faults": document(outcome.host_faults)} if outcome.host_faults else {}),
        **({} if outcome.profile is None else {"profile": outcome.profile}),
    }


def rate_json(rate: Sample) -> dict[str, Any]:
    """Return a job's rate: per second over all ranks, and what is counted."""
    return {
        "rate": rate.rate,
        "unit": "steps" if rate.source == "steps" else "samples",
        "step_seconds": rate.step_seconds,
        "slowest_rate": rate.slowest_rate,
        "seconds": rate.seconds,
        "ranks": rate.heard,
    }


def error_json(error: RingleaderError, command: tuple[str, ...]) -> dict[str, Any]:
    """Return what is said of a job that did not come to an outcome."""
    return {
        "format": FORMAT,
        "ringleader": __version__,
        "command": list(command),
        "exit_code": error.exit_code,
        "whose": "ringleader",
        "reason": str(error),
        "faults": [vars(fault) for fault in error.faults],
    }


def _history(history: ElasticHistory) -> dict[str, Any]:
    from ringleader.launch.elastic_history import event_json

    return vars(history) | {"events": [event_json(event) for event in history.events]}


def _end(end: RankEnd) -> dict[str, Any]:
    return {name: value for name, value in vars(end).items() if name != "orphaned"}


_IN_SLURM_TOO = {
    "gpus": "GPUs per worker; in Slurm per node, not of the job.",
    "job_name": "Job name. [default: the script's; on Kubernetes, plus five random letters]",
    "detach": "Submit the job, print its name (its ID in Slurm), and exit.",
}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """All options of ``run``."""

    hosts: HostOptions = group(HostOptions, changed={"on": ON})
    job: Job = group(Job)
    ranks: RankOptions = group(RankOptions)
    show_ranks: frozenset[int] | None = option(
        "Show only the output of these ranks, but explain all failures.",
        old=("--rank-filter",),
        metavar="0,3|0-3",
        read=read_ranks,
        after="quiet",
    )
    dry_run: bool = flag("Probe the hosts, print what would run, and stop.", after="workdir")
    json: JsonOptions = group(JsonOptions, after="dry_run", changed=OF_A_JOB)
    elastic: Mapping[str, Any] = group(ElasticOptions, given=True)
    kubernetes: KubernetesOptions = group(KubernetesOptions, changed=_IN_SLURM_TOO)
    slurm: BatchOptions = group(BatchOptions)


class RunCommand(Command[RunOptions]):
    """A command whose help depends on where the job shall run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note first what ``--on`` says: the help asks for it."""
        values = [after for word, after in pairwise(args) if word == "--on"]
        ctx.meta["ringleader.on"] = values or [word[5:] for word in args if word.startswith("--on=")]
        return super().parse_args(ctx, args)

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, list[click.Parameter]]]:
        """Yield the everyday options, or those of a cluster, or all."""
        every = self.get_params(ctx)
        on_cluster = [one for one in every if is_for_clusters(one.name or "")]
        elsewhere = [one for one in every if one not in on_cluster]
        is_there = bool(set(ctx.meta.get("ringleader.on", ())) & set(PLACES))
        if is_there and not is_full_help(ctx):
            elsewhere = [one for one in elsewhere if not means_nothing(one)]
        gpus = [one for one in on_cluster if one.name == "gpus"]
        for title, shown in self.in_sections(elsewhere, is_full=is_there or is_full_help(ctx)):
            yield title, [*shown, *gpus] if title == BatchOptions.SECTION else shown
        if "slurm" in ctx.meta.get("ringleader.on", ()) and not is_full_help(ctx):
            yield "Options in Slurm", [one for one in every if one.name in OF_SLURM]
        if is_full_help(ctx):
            yield SECTION, on_cluster
        elif is_there:
            yield "Options on Kubernetes", on_cluster


@RunCommand.of(
    "run",
    RunOptions,
    first=("np",),
    overridden=overridden,
    everyday=(
        "np hosts hostfile lab on python oversubscribe x require output report quiet timeout max_restarts "
        "sync dry_run json min_np max_np host_discovery_script"
    ),
    no_args_is_help=True,
)
def command(options: RunOptions) -> int:
    """Run COMMAND on many ranks: here, over ssh, in Slurm, or on Kubernetes.

    What follows COMMAND is passed to it; `--` before it is optional. More help: `run --on slurm --help`,
    `run --on kubernetes --help`, --help-all.

    \b
      ringleader run -n 2 python train.py --lr 0.1
      ringleader run -H node1:4,node2:4 python train.py
      ringleader run --hostfile hosts.txt --dry-run python train.py
      ringleader run --on slurm --nodes 2 --gpus 8 --time 2:00:00 -- python train.py
      ringleader run --on kubernetes -n 8 --image example.org/team/train:1 -- python train.py

    Without hosts: the current Slurm, PBS, or LSF allocation, else this machine.
    """
    on = options.hosts.on
    context = click.get_current_context()
    if wrong := misplaced_options(context, on):
        raise RequestError((*faults_of_words(context), *wrong))
    if on in PLACES:
        from ringleader.cli.kubernetes.run_job import run_request

        there = replace(options.kubernetes, job=replace(options.kubernetes.job, job=options.job))
        return run_request("pods" if on == "pods" else "kubernetes", there)
    if is_to_be_sent(options.hosts, os.environ):
        from ringleader.cli.slurm.run_job import run_on_slurm

        job, follow = build_job(options, environ=os.environ), options.kubernetes.follow
        return run_on_slurm("run", job, [options.slurm], follow, outside=("quiet", "json", "json_file"))
    return run(options, environ=os.environ)


def run(options: RunOptions, *, environ: Mapping[str, str]) -> int:
    """Do what was asked for and return the exit code.

    Raises RequestError with every fault at once, and what ``launch`` raises.
    """
    json = JsonOptions() if options.dry_run else options.json
    with result_to(json) as result:
        try:
            job = build_job(options, environ=environ)
            if job.warm:
                from ringleader.launch.preforked_hosts import preloaded_modules

                preloaded_modules(job)  # a command that cannot be forked is refused before anything else
            if options.dry_run:
                print(dry_run_text(job, environ=environ), end="", flush=True)
                return 0
            outcome = run_job(job, environ=environ, shown=options.show_ranks, output_to_stderr=json.json)
        except RingleaderError as error:
            values = error_json(error, options.job.command)
            result.keep(lambda: values, failed=True)
            raise
        result.keep(lambda: outcome_json(outcome, job), failed=bool(outcome.exit_code))
    return outcome.exit_code


def read_job(
    asked: Job,
    ranks: RankOptions,
    where: HostOptions,
    *,
    environ: Mapping[str, str],
    say: Callable[[str], None] | None = None,
    here: str = "",
) -> tuple[Job, Chosen]:
    """Return the job as it was written, not checked yet, and how its hosts were found.

    ``say`` hears of a batch system's allocation where that gives the hosts. ``here``: the directory that
    relative paths start from, if not the current one. Raises LabError where a lab is meant and none is up.
    """
    chosen = choose_hosts(where, asked.ssh, environ=environ, read=read_text, find_lab=find_lab)
    if say is not None and chosen.allocation is not None:
        say(f"ringleader: {allocation_text(chosen.allocation)}")
    here = here or str(Path.cwd())
    return make_job(asked, ranks, chosen=chosen, environ=environ, read=read_text, current_dir=here), chosen


def build_job(options: RunOptions, *, environ: Mapping[str, str]) -> Job:
    """Return the job that was asked for, checked as far as this machine can tell."""
    where, elastic = options.hosts, options.elastic
    job, chosen = read_job(options.job, options.ranks, where, environ=environ)
    faults = Faults(found=list(job.faults))
    if options.show_ranks and job.np is not None and max(options.show_ranks) >= job.np:
        beyond = min(rank for rank in options.show_ranks if rank >= job.np)
        faults.add("--show-ranks", f"there is no rank {beyond}", f"the last one is {job.np - 1}")
    changes = elastic_options(
        elastic,
        np=job.np,
        hostfile=None if where.hosts else where.hostfile,
        slurm_job=followed_slurm_job(chosen, where, elastic, environ),
        faults=faults,
    )
    restart = environ.get("SLURM_RESTART_COUNT") or "0"
    if restart != "0":  # the first run of this job has its record and traces in these directories
        report, traces = (path and f"{path}/restart-{restart}" for path in (job.report, job.profile_dir))
        job = replace(job, report=report, profile_dir=traces)
    if job.profile is not None:
        from ringleader.bench.run_file import name_of_now, script_name  # few jobs need it

        usual = job.report or f"runs/{name_of_now(script_name(job.command))}"
        job = replace(job, profile_dir=os.path.abspath(job.profile_dir or f"{usual}/profile"))  # noqa: PTH100
    every = job.sample_seconds if job.report is None else 1.0
    job = replace(job, elastic=changes, sample_seconds=every, faults=tuple(faults.found))
    check(job)
    check_ssh_files(job)
    if chosen.allocation is not None:
        print(f"ringleader: {allocation_text(chosen.allocation)}", file=sys.stderr)
    elif options.job.np is None and chosen.np is None and (text := bare_hosts_text(where)):
        print(f"ringleader: {text}", file=sys.stderr)
    if where.on != "slurm" and job.container is None and is_here(job):
        check_program(job, environ)
    return job


def followed_slurm_job(
    chosen: Chosen, where: HostOptions, elastic: Mapping[str, Any], environ: Mapping[str, str]
) -> str | None:
    """Return the number of the Slurm job whose nodes an elastic job follows: all of them, and no others."""
    if chosen.allocation is None or where.nnodes is not None or "discovery_script" in elastic:
        return None
    return slurm_job_id(chosen.allocation, environ)


def dry_run_text(job: Job, *, environ: Mapping[str, str]) -> str:
    """Return the text of a dry run; the terminal shows how far looking at the hosts has come."""
    with interrupts.held():
        from ringleader.cli.run.dry_run import dry_run
        from ringleader.cli.run.terminal import terminal

    listener = terminal(prefix=True, quiet=False)
    try:
        return dry_run(job, environ=environ, listener=listener)
    finally:
        listener.finish(None)


def run_job(
    job: Job,
    *,
    environ: Mapping[str, str],
    shown: Collection[int] | None = None,
    output_to_stderr: bool = False,
    label: Label | None = None,
) -> Outcome:
    """Launch the job and show it to the terminal. ``shown``: ranks whose output is shown; ``None``: all.

    ``label``: what stands before a line, as Horovod has it; which wires carried the bytes is not told then.
    """
    with interrupts.held():
        from ringleader.launch.mpirun.mpirun_process import MpirunProcess
    standby = MpirunProcess()  # it starts while the rest is imported
    with interrupts.held():
        from ringleader.cli.run.terminal import terminal
        from ringleader.launch.launch_job import launch
        from ringleader.launch.rank_output import descriptor

    listener = terminal(
        prefix=job.prefix_output,
        quiet=job.quiet,
        shown=shown,
        output_to_stderr=output_to_stderr,
        label=label,
        transport=label is None,
    )
    if job.profile is not None and job.profile_dir is not None:
        from ringleader.cli.run.profile import Profile

        listener.profile = Profile(job.profile, job.profile_dir, listener.warning)
    recording = None
    try:
        if job.report is not None:
            from ringleader.cli.run.recording import Recording  # few jobs need it

            recording = Recording(job, job.report, listener)
        record = None if recording is None else recording.record
        if job.check is not None:

            def warn(host: str, text: str) -> None:
                listener.warning(text)
                if record is not None and host:
                    record.happened("host_left_out", host, text)

            job = gated(job, environ=environ, progress=listener.progress, warn=warn)
        stdin = descriptor(sys.stdin)
        outcome = launch(job, environ=environ, listener=listener, stdin=stdin, standby=standby, record=record)
    except RingleaderError as error:
        standby.close()
        if recording is not None:
            recording.failed(error)
        listener.finish(None)
        raise
    outcome = replace(outcome, rate=listener.rate(outcome.plan.size))
    if listener.profile is not None:
        outcome = replace(outcome, profile=listener.profile.finish())
    if recording is not None:
        recording.ended(outcome, None if listener.profile is None else listener.profile.split)
    listener.finish(outcome)
    return outcome


def gated(
    job: Job,
    *,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
    warn: Callable[[str, str], None],
) -> Job:
    """Return the job without the hosts that fail ``--check``; see `host_gate.checked`."""
    with interrupts.held():
        from ringleader.doctor.host_gate import checked

    def show(text: str) -> None:
        if text:  # an empty one says that the job's own ranks run
            progress(text)

    return checked(job, environ=environ, progress=show, warn=warn)


def find_lab(name: str | None) -> Lab:
    """Return the lab of a name, or the one that runs on this machine; raises LabError where there is none."""
    from ringleader.lab.saved_state import to_launch_on

    return to_launch_on(name=name, environ=os.environ)


def check_ssh_files(job: Job) -> None:
    """Raise RequestError for an ssh configuration or key that does not exist, whether it is used or not."""
    if job.ssh.config is not None or job.ssh.identity is not None:
        from ringleader.launch.ssh.connections import check_files

        check_files(job.ssh)


def is_here(job: Job) -> bool:
    """Say whether all ranks run on this machine for certain, so that its files are the job's files."""
    if job.hosts and (job.ssh.port is not None or job.ssh.identity is not None):
        return False
    name = socket.gethostname()
    here = {"localhost", "127.0.0.1", "::1", name, name.partition(".")[0]}
    return all(host.name in here for host in job.hosts)


def check_program(job: Job, environ: Mapping[str, str]) -> None:
    """Raise RequestError where the command's program is not here, naming where it was looked for."""
    word = job.command[0]
    if "/" in word:
        path = Path(job.workdir, word)
        if not path.is_file():
            raise RequestError(f"there is no program {path}", where="COMMAND")
        if not os.access(path, os.X_OK):
            raise RequestError(
                f"{path} is not executable",
                where="COMMAND",
                hint=f"chmod +x, or name its interpreter: python {word}",
            )
        return
    path_of_ranks = search_path(job, environ, job.python or sys.executable)
    if shutil.which(word, path=path_of_ranks) is None:
        script = Path(job.workdir, word)
        hint = (
            f"write ./{word} or python {word}" if script.is_file() else "check the spelling, or give its path"
        )
        raise RequestError(
            f"there is no program {word!r} in {path_of_ranks}",
            where="COMMAND",
            hint=hint,
        )
