"""``ringleader run``: options become a job, the job is launched, and a person is told how it went."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ringleader.batch_system import slurm_job_id
from ringleader.cli import interrupts
from ringleader.cli.help_pages import is_full_help
from ringleader.cli.json_output import JsonOptions, outcome_to
from ringleader.cli.options.elastic_options import (
    ELASTIC_OPTIONS,
    ElasticRunOptions,
    elastic_options,
)
from ringleader.cli.options.host_options import (
    HOST_OPTIONS,
    Chosen,
    HostOptions,
    LabFiles,
    allocation_text,
    choose_hosts,
    overridden,
)
from ringleader.cli.options.kubernetes_options import (
    KUBERNETES_OPTIONS,
    PLACES,
    KubernetesOptions,
    is_for_clusters,
    is_for_hosts,
)
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.options.rank_options import RUN_OPTIONS, RunOptions, make_job
from ringleader.cli.run.outcome_values import error_json, outcome_json
from ringleader.cli.typed_command import Command, Option, given, spelling
from ringleader.errors import Fault, RequestError, RingleaderError
from ringleader.job import Job, check
from ringleader.render.rank_environment import search_path
from ringleader.text_files import read_text
from ringleader.value_class import dataclass

if TYPE_CHECKING:
    from ringleader.launch.outcome import Outcome

HELP = """Start COMMAND on many ranks: here, on hosts over ssh, in a lab, or on Kubernetes.

Everything after the first word that is not an option belongs to COMMAND, its own options included.

\b
  ringleader run -n 2 python train.py --lr 0.1
  ringleader run -H node1:4,node2:4 python train.py
  ringleader run --hostfile hosts.txt --dry-run python train.py
  ringleader run --on kubernetes -n 8 --image example.org/team/train:1 -- python train.py

Without hosts an allocation of Slurm, PBS or LSF is used if run inside one, else this machine.
"""


@dataclass(frozen=True, kw_only=True)
class RunCommandOptions:
    """All options of ``run``."""

    ranks: RunOptions = field(default_factory=RunOptions)
    hosts: HostOptions = field(default_factory=HostOptions)
    elastic: ElasticRunOptions = field(default_factory=ElasticRunOptions)
    kubernetes: KubernetesOptions = field(default_factory=KubernetesOptions)


def run_command(options: RunCommandOptions) -> int:
    """Run the job; return the exit code."""
    on = options.hosts.on
    misplaced = misplaced_options(click.get_current_context(), on)
    if misplaced:
        raise RequestError(misplaced)
    if on in PLACES:
        from ringleader.cli.kubernetes.run_job import run_request

        return run_request("pods" if on == "pods" else "kubernetes", options.kubernetes)
    return run(options.ranks, options.hosts, options.elastic, environ=os.environ)


EVERYDAY = (
    *(
        "np",
        "hosts",
        "hostfile",
        "lab",
        "on",
        "mpi",
        "oversubscribe",
        "x",
        "env_file",
        "workdir",
        "as_horovod",
    ),
    *("output", "quiet", "timeout", "dry_run", "json", "json_file"),
    "show_ranks",
)
"""Options of the short help."""


class RunCommand(Command[RunCommandOptions]):
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
        if is_full_help(ctx):
            yield "Options", [one for one in every if self.is_everyday(one)]
            rest = [one for one in every if not self.is_everyday(one) and one not in on_cluster]
            yield "More options", rest
            yield "Options on Kubernetes (--on kubernetes, --on pods)", on_cluster
        elif set(ctx.meta["ringleader.on"]) & set(PLACES):
            yield "Options", [one for one in every if one not in on_cluster and not means_nothing(one)]
            yield "Options on Kubernetes", on_cluster
        else:
            yield "Options", [one for one in every if self.is_everyday(one)]


_ON = Option(
    ["--on"],
    metavar="local|ssh|lab|kubernetes|pods",
    help="Where to run; local, ssh and lab follow from the other options. pods: on Kubernetes, but without "
    "an operator.",
)

command = RunCommand(
    "run",
    options=RunCommandOptions,
    run=run_command,
    overridden=overridden,
    everyday=EVERYDAY,
    params=[
        *RUN_OPTIONS[:1],
        *(_ON if option.name == "on" else option for option in HOST_OPTIONS),
        *RUN_OPTIONS[1:-1],
        *ELASTIC_OPTIONS,
        *KUBERNETES_OPTIONS,
        RUN_OPTIONS[-1],
    ],
    help=HELP,
    no_args_is_help=True,
    context_settings={"allow_interspersed_args": False},
)


def means_nothing(parameter: click.Parameter) -> bool:
    """Say whether a parameter means nothing on a cluster."""
    name = parameter.name or ""
    return is_for_hosts(name) and name not in ("no_prefix", "bind") and parameter.expose_value


def misplaced_options(ctx: click.Context, on: str | None) -> list[Fault]:
    """Return what is wrong with options that mean nothing where the job shall run."""
    found = []
    for option in given(ctx):
        if on in PLACES and means_nothing(option):
            hint = "leave it out: the cluster places the ranks"
            if option.name == "require":
                hint = "leave it out: nothing counts the bytes of Pods yet"
            elif option.name == "max_restarts":
                hint = "--backoff-limit tries a failed job on a cluster again"
            found.append(Fault(where=spelling(option), what=f"means nothing with --on {on}", hint=hint))
        elif on not in PLACES and is_for_clusters(option.name or ""):
            hint = "add --on kubernetes, or leave it out"
            found.append(Fault(where=spelling(option), what="is for jobs on Kubernetes", hint=hint))
    return found


def run(
    options: RunOptions,
    where: HostOptions,
    elastic: ElasticRunOptions | None = None,
    *,
    environ: Mapping[str, str],
) -> int:
    """Do what was asked for and return the exit code.

    Raises RequestError with every fault at once, and what ``launch`` raises.
    """
    json = JsonOptions() if options.dry_run else options.json.checked()
    with outcome_to(json) as kept:
        try:
            job = build_job(options, where, elastic, environ=environ)
            if job.warm:
                from ringleader.launch.warm_hosts import warm_modules

                warm_modules(job)  # a command that cannot be forked is refused before anything else
            if options.dry_run:
                print(dry_run_text(job, environ=environ), end="", flush=True)
                return 0
            shown = Faults().ranks("--show-ranks", options.show_ranks)
            outcome = run_job(job, environ=environ, shown=shown, output_to_stderr=json.json)
        except RingleaderError as error:
            values = error_json(error, options.command)
            kept.keep(lambda: values, failed=True)
            raise
        kept.keep(lambda: outcome_json(outcome, job), failed=bool(outcome.exit_code))
    return outcome.exit_code


def read_job(
    options: RunOptions,
    where: HostOptions,
    *,
    environ: Mapping[str, str],
    say: Callable[[str], None] | None = None,
) -> tuple[Job, Chosen]:
    """Return the job as it was written, not checked yet, and how its hosts were found.

    ``say`` hears of a batch system's allocation where that gives the hosts. Raises LabError where a lab is
    meant and none is up.
    """
    chosen = choose_hosts(where, environ=environ, read=read_text, find_lab=find_lab)
    if say is not None and chosen.allocation is not None:
        say(f"ringleader: {allocation_text(chosen.allocation)}")
    here = str(Path.cwd())
    return make_job(options, where, chosen=chosen, environ=environ, read=read_text, current_dir=here), chosen


def build_job(
    options: RunOptions,
    where: HostOptions,
    elastic: ElasticRunOptions | None = None,
    *,
    environ: Mapping[str, str],
) -> Job:
    """Return the job that was asked for, checked as far as this machine can tell."""
    job, chosen = read_job(options, where, environ=environ)
    if elastic is not None:
        faults = Faults(found=list(job.faults))
        changes = elastic_options(
            elastic,
            np=job.np,
            hostfile=None if where.hosts else where.hostfile,
            slurm_job=followed_slurm_job(chosen, where, elastic, environ),
            faults=faults,
        )
        job = replace(job, elastic=changes, faults=tuple(faults.found))
    check(job)
    check_ssh_files(job)
    if chosen.allocation is not None:
        print(f"ringleader: {allocation_text(chosen.allocation)}", file=sys.stderr)
    if is_here(job):
        check_program(job, environ)
    return job


def followed_slurm_job(
    chosen: Chosen, where: HostOptions, elastic: ElasticRunOptions, environ: Mapping[str, str]
) -> str | None:
    """Return the number of the Slurm job whose nodes an elastic job follows: all of them, and no others."""
    if chosen.allocation is None or where.nnodes is not None or elastic.host_discovery_script is not None:
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
    job: Job, *, environ: Mapping[str, str], shown: Collection[int] | None, output_to_stderr: bool
) -> Outcome:
    """Launch the job and show it to the terminal. ``shown``: ranks whose output is shown; ``None``: all."""
    with interrupts.held():
        from ringleader.launch.mpirun.mpirun_process import MpirunStandby
    standby = MpirunStandby()  # it starts while the rest is imported
    with interrupts.held():
        from ringleader.cli.run.terminal import terminal
        from ringleader.launch.launch_job import launch
        from ringleader.launch.rank_output.output_streams import descriptor

    listener = terminal(
        prefix=job.prefix_output,
        quiet=job.quiet,
        shown=shown,
        output_to_stderr=output_to_stderr,
        transport=True,
    )
    try:
        outcome = launch(
            job, environ=environ, listener=listener, stdin=descriptor(sys.stdin), standby=standby
        )
    except RingleaderError:
        listener.finish(None)
        raise
    listener.finish(outcome)
    return outcome


def find_lab(name: str | None) -> LabFiles:
    """Return the lab of a name, or the one that runs on this machine; raises LabError where there is none."""
    from ringleader.lab.saved_state import to_launch_on

    return to_launch_on(name=name, environ=os.environ)


def check_ssh_files(job: Job) -> None:
    """Raise RequestError for a configuration or a key of ssh that is not there, whether it is used or not."""
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
