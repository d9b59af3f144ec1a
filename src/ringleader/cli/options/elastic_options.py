"""Options of ``ringleader run`` for jobs whose hosts and ranks may change, and what they become."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ringleader.cli.options.option_checks import Faults
from ringleader.cli.typed_command import Option, complete_files
from ringleader.value_class import dataclass

if TYPE_CHECKING:
    from ringleader.elastic_options import ElasticOptions


@dataclass(frozen=True, kw_only=True)
class ElasticJobOptions:
    """Those that mean the same wherever a job runs; as they were written."""

    min_np: str | None = None
    max_np: str | None = None
    min_hosts: str | None = None
    max_hosts: str | None = None
    rank_restarts: str | None = None
    exclude_hosts: bool = False
    reset_limit: str | None = None
    blacklist_cooldown_range: tuple[str, str] | None = None
    elastic_timeout: str | None = None
    elastic_hang_seconds: str | None = None
    checkpoint_dir: str | None = None
    checkpoint_every: str | None = None


@dataclass(frozen=True, kw_only=True)
class ElasticRunOptions(ElasticJobOptions):
    """All of them, as they were written."""

    host_discovery_script: str | None = None
    slots_per_host: str | None = None


ELASTIC_OPTIONS: tuple[click.Parameter, ...] = (
    Option(
        ["--min-np"],
        old=["--min-num-proc"],
        metavar="N",
        help="The job is elastic: ranks and hosts may fail, come and go, as long as N ranks can train. "
        "[default: -n with --host-discovery-script, else 1]",
    ),
    Option(
        ["--max-np"],
        old=["--max-num-proc"],
        metavar="N",
        help="The job is elastic: it grows to N ranks where hosts allow. [default: all slots they have]",
    ),
    Option(["--min-hosts"], metavar="N", help="Of an elastic job: hosts at least. [default: 1]"),
    Option(["--max-hosts"], metavar="N", help="Of an elastic job: hosts at most."),
    Option(
        ["--host-discovery-script"],
        metavar="COMMAND",
        shell_complete=complete_files,
        help="The job is elastic: COMMAND, run every second, prints its hosts, 'h1' or 'h1:2' a line. "
        "Without it a --hostfile is read again when it changes, and in a Slurm job without -H its nodes are "
        "asked for every 30 s.",
    ),
    Option(
        ["--slots-per-host"],
        old=["--slots"],
        metavar="N",
        help="Slots of a host for which COMMAND or the hostfile says none. [default: its cores]",
    ),
    Option(
        ["--rank-restarts"],
        metavar="N",
        help="A rank that fails is replaced so often within 60 s; then its slot is left out. [default: 3]",
    ),
    Option(
        ["--exclude-hosts"],
        is_flag=True,
        help="A rank that fails is not replaced: its host leaves the job, as in Horovod.",
    ),
    Option(["--reset-limit"], metavar="N", help="End an elastic job at the reset after so many."),
    Option(
        ["--blacklist-cooldown-range"],
        nargs=2,
        metavar="SHORTEST LONGEST",
        help="Seconds that a host that failed stays out, doubled each time. [default: 10 600 where hosts are "
        "discovered, a hostfile's or Slurm's, else for good]",
    ),
    Option(
        ["--elastic-timeout"],
        metavar="SECONDS",
        help="For enough hosts to come, and for ranks to call init again. [default: 600]",
    ),
    Option(
        ["--elastic-hang-seconds"],
        metavar="SECONDS",
        help="A rank that keeps others waiting for so long is ended and replaced.",
    ),
    Option(
        ["--checkpoint-dir"],
        metavar="DIR",
        help="On each host: commits become files here, read when the job starts with none.",
    ),
    Option(
        ["--checkpoint-every"], metavar="N", help="Every so many commits one becomes a file. [default: 10]"
    ),
)
"""Of ``run`` alone."""


def elastic_options(
    options: ElasticRunOptions,
    *,
    np: int | None,
    hostfile: str | None,
    slurm_job: str | None = None,
    faults: Faults,
) -> ElasticOptions | None:
    """Return what is asked for; ``None``: the job does not change. Faults are noted.

    ``slurm_job``: Slurm's number of the job whose nodes are the hosts.
    """
    asks = (
        options.min_np,
        options.max_np,
        options.host_discovery_script,
        options.min_hosts,
        options.max_hosts,
    )
    given = {name: value for name, value in vars(options).items() if value not in (None, (), False)}
    if all(one is None for one in asks):
        for name in given:
            hint = "add --min-np, --max-np or --host-discovery-script"
            faults.add(f"--{name.replace('_', '-')}", "is for elastic jobs", hint)
        return None
    from ringleader.elastic_options import COOLDOWN, ElasticOptions  # few jobs are elastic

    script = options.host_discovery_script
    if script is not None and hostfile is not None:
        faults.add("--host-discovery-script and --hostfile", "only one of them can name the hosts", "")
    whole = {
        name: faults.whole(f"--{name.replace('_', '-')}", getattr(options, name))
        for name in (
            *("min_np", "max_np", "min_hosts", "max_hosts", "slots_per_host", "rank_restarts"),
            *("reset_limit", "checkpoint_every"),
        )
    }
    cooldown: tuple[float, float] | None = COOLDOWN if script is not None or hostfile or slurm_job else None
    if options.blacklist_cooldown_range:
        words = options.blacklist_cooldown_range
        seconds = [faults.seconds("--blacklist-cooldown-range", word) for word in words]
        if seconds[0] is not None and seconds[1] is not None:
            cooldown = (seconds[0], seconds[1])
    timeout = faults.seconds("--elastic-timeout", options.elastic_timeout)
    least = np if script is not None and np is not None else 1
    return ElasticOptions(
        min_np=_or(whole["min_np"], least),
        max_np=whole["max_np"],
        min_hosts=_or(whole["min_hosts"], 1),
        max_hosts=whole["max_hosts"],
        discovery_script=script,
        hostfile=hostfile,
        slurm_job=slurm_job,
        slots=whole["slots_per_host"],
        rank_restarts=_or(whole["rank_restarts"], ElasticOptions.rank_restarts),
        exclude_hosts=options.exclude_hosts,
        reset_limit=whole["reset_limit"],
        cooldown=cooldown,
        timeout=ElasticOptions.timeout if timeout is None else timeout,
        hang_seconds=faults.seconds("--elastic-hang-seconds", options.elastic_hang_seconds),
        checkpoint_dir=options.checkpoint_dir,
        checkpoint_every=_or(whole["checkpoint_every"], ElasticOptions.checkpoint_every),
    )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
