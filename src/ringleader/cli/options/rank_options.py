"""Options that say what runs on how many ranks, and how they become a ``Job``; for ``run`` and ``scale``.

Touches nothing: files are handed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import click

from ringleader.cli.json_output import JOB_JSON_OPTIONS, JobJsonOptions
from ringleader.cli.options.host_options import Chosen, HostOptions
from ringleader.cli.options.option_checks import Faults, ReadText
from ringleader.cli.options.rank_variables import Variables, parse_assignments, parse_env_file
from ringleader.cli.typed_command import Option, complete_files
from ringleader.errors import collected
from ringleader.job import CONSISTENCY, Job, Placement
from ringleader.value_class import dataclass


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """What is said of a job in the same words here and on a cluster; as it was written."""

    command: tuple[str, ...] = ()
    np: str | None = None
    map_by: str = "slot"
    threads: str | None = None
    master_port: str | None = None
    x: tuple[str, ...] = ()
    env_file: tuple[str, ...] = ()
    autotune: bool = False
    consistency_check: str | None = None
    timeout: str | None = None
    workdir: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunOptions(CommandOptions):
    """The words of the command line that say what and how."""

    oversubscribe: bool = False
    share_gpus: bool = False
    all_gpus: bool = False
    own_gpu: bool = False
    bind: str = "auto"
    as_horovod: bool = False
    require: tuple[str, ...] = ()
    no_settings: bool = False
    timeline: str | None = None
    output: str | None = None
    quiet: bool = False
    no_prefix: bool = False
    grace: str | None = None
    lost_after: str | None = None
    max_restarts: str | None = None
    warm: bool = False
    show_ranks: str | None = None
    dry_run: bool = False
    json: JobJsonOptions = field(default_factory=JobJsonOptions)


RUN_OPTIONS: tuple[click.Parameter, ...] = (
    Option(
        ["-n", "-np", "--np", "np"],
        metavar="N",
        help="Number of ranks. [default: one for each slot of the hosts; without hosts: 1]",
    ),
    Option(
        ["--map-by"],
        default="slot",
        show_default=True,
        metavar="slot|node",
        help="Fill one host after the other, or one slot on each in turn.",
    ),
    Option(["--oversubscribe"], is_flag=True, help="Allow more ranks than slots."),
    Option(["--share-gpus"], is_flag=True, help="Allow more ranks of a host than it has GPUs."),
    Option(
        ["--all-gpus"],
        is_flag=True,
        help="Let every rank see all GPUs of its host, the default: scripts pick that of their local rank.",
    ),
    Option(
        ["--own-gpu"],
        is_flag=True,
        help="Let every rank see its own GPU only, as device 0, for scripts that pick none.",
    ),
    Option(
        ["--bind"],
        default="auto",
        show_default=True,
        metavar="auto|none",
        help="Bind each rank to its share of the cores, or let all roam.",
    ),
    Option(
        ["--threads"],
        metavar="N",
        help="Threads of each rank: OMP_NUM_THREADS, and TensorFlow's and XLA's variables. [default: yours, "
        "else its share of the cores]",
    ),
    Option(
        ["--master-port", "master_port"],
        old=["--master_port"],
        metavar="PORT",
        help="MASTER_PORT. [default: a free one on the first rank's host]",
    ),
    Option(
        ["-x", "x"],
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Set a variable for every rank, or pass yours on; may be given again.",
    ),
    Option(["--env-file"], multiple=True, metavar="FILE", help="Set the variables of a file."),
    Option(
        ["--as-horovod"],
        is_flag=True,
        help="For scripts written for Horovod: 'import horovod.torch' gives ringleader.torch.",
    ),
    Option(
        ["--require"],
        multiple=True,
        metavar="WIRE[,WIRE]",
        help="What must carry the ranks' bytes: rdma, infiniband, roce, iwarp, efa or tcp between hosts, shm "
        "or p2p within a host, gdr (GPUDirect RDMA). Exit code 3 where it does not, or cannot be shown to; "
        "before the start where that is known then. Not for elastic jobs.",
    ),
    Option(
        ["--no-settings"],
        is_flag=True,
        help="Set no variables for the transports of each host (NCCL, UCX, libfabric, MPI); --dry-run shows "
        "them.",
    ),
    Option(
        ["--timeline"],
        metavar="FILE",
        help="Rank 0 writes what its operations go through as a Chrome trace; with {rank} in the name every "
        "rank writes one. DYNAMIC lets the script start and stop it.",
    ),
    Option(
        ["--autotune"],
        is_flag=True,
        help="Try sizes of buckets, and sizes at which arrays go another way, during the first steps of a "
        "training; go on with the best and say which.",
    ),
    Option(
        ["--consistency-check"],
        type=click.Choice(CONSISTENCY),
        help="Compare the ranks' parameters from time to time (at most 0.1% of a step), and warn where they "
        "differ, or end the job. [default: RINGLEADER_CONSISTENCY_CHECK, else warn]",
    ),
    Option(
        ["-o", "--output", "output"],
        old=["--output-dir"],
        metavar="DIR",
        help="Directory for a file of each rank and stream.",
    ),
    Option(["--quiet"], is_flag=True, help="Show no output of the ranks; failures are still explained."),
    Option(
        ["--show-ranks"],
        old=["--rank-filter"],
        metavar="0,3|0-3",
        help="Show the output of these ranks only; failures of others are still explained.",
    ),
    Option(["--no-prefix"], is_flag=True, help="Leave out '[rank] ' before each line."),
    Option(
        ["--timeout"],
        metavar="SECONDS",
        help="Stop the job after so long and print the Python stack of every rank.",
    ),
    Option(
        ["--grace"],
        metavar="SECONDS",
        help="Between SIGTERM and SIGKILL when the ranks are stopped; a second Ctrl-C does not wait for it. "
        "[default: 30]",
    ),
    Option(
        ["--lost-after"],
        metavar="SECONDS",
        help="Silence after which a host is lost: it is down, or the network to it is. [default: 10]",
    ),
    Option(
        ["--max-restarts"],
        old=["--max_restarts"],
        metavar="N",
        help="Start all ranks again so often after a failure, as torchrun does; the script reads "
        "TORCHELASTIC_RESTART_COUNT and goes on from its checkpoint. [default: 0]",
    ),
    Option(
        ["--warm"],
        is_flag=True,
        help="With --max-restarts: restarts do not import PyTorch again; each host keeps a Python that has, "
        "from which ranks are forked.",
    ),
    Option(["--workdir"], metavar="DIR", help="Working directory of the ranks. [default: this one]"),
    Option(
        ["--dry-run"], is_flag=True, help="Look at the hosts, then print what would be executed and stop."
    ),
    *JOB_JSON_OPTIONS,
    click.Argument(
        ["command"], nargs=-1, type=click.UNPROCESSED, metavar="COMMAND...", shell_complete=complete_files
    ),
)
"""The parameters of ``run`` besides the host options."""


def make_job(
    options: RunOptions,
    where: HostOptions,
    *,
    chosen: Chosen,
    environ: Mapping[str, str],
    read: ReadText,
    current_dir: str,
) -> Job:
    """Return the job; everything wrong with the words is in its ``faults``.

    ``read`` is only used for the files of ``--env-file``.
    """
    faults = Faults(found=list(chosen.faults))
    np = _ranks(options, chosen, faults)
    placement = _placement(options, faults)
    variables = variables_of(options, environ, read, faults)
    variables |= _timeline(options, current_dir) | _autotune(options)
    timeout = faults.seconds("--start-timeout", where.start_timeout)
    grace = faults.seconds("--grace", options.grace)
    lost_after = faults.seconds("--lost-after", options.lost_after)
    shown = faults.ranks("--show-ranks", options.show_ranks)
    if shown and np is not None and (beyond := sorted(rank for rank in shown if rank >= np)):
        faults.add("--show-ranks", f"there is no rank {beyond[0]}", f"the last one is {np - 1}")
    if options.all_gpus and options.own_gpu:
        faults.add("--own-gpu", "contradicts --all-gpus", "leave one out; all GPUs are seen by default")
    return Job(
        command=options.command,
        np=np,
        hosts=chosen.hosts,
        mpi=where.mpi,
        ssh=chosen.ssh,
        placement=placement,
        oversubscribe=options.oversubscribe,
        share_gpus=options.share_gpus,
        all_gpus=options.all_gpus or not options.own_gpu,
        bind=options.bind,
        threads=faults.whole("--threads", options.threads),
        network_interface=where.network_interface,
        master_port=faults.whole("--master-port", options.master_port),
        env=tuple(variables.items()),
        as_horovod=options.as_horovod,
        require=_required(options, faults),
        transport_settings=not options.no_settings,
        output_dir=options.output,
        quiet=options.quiet,
        prefix_output=not options.no_prefix,
        timeout=faults.seconds("--timeout", options.timeout),
        start_timeout=Job.start_timeout if timeout is None else timeout,
        grace=Job.grace if grace is None else grace,
        lost_after=Job.lost_after if lost_after is None else lost_after,
        consistency_check=options.consistency_check,
        max_restarts=faults.whole("--max-restarts", options.max_restarts) or 0,
        warm=options.warm,
        workdir=_absolute(current_dir, options.workdir),
        python=where.python,
        extra_mpirun_args=where.mpirun_arg,
        faults=tuple(faults.found),
    )


def _ranks(options: RunOptions, chosen: Chosen, faults: Faults) -> int | None:
    """Return how many ranks ``-n`` or torchrun's options ask for."""
    np = faults.whole("-n", options.np)
    if np is not None and chosen.np is not None and np != chosen.np:
        hint = "leave out -n, or torchrun's options"
        faults.add("-n and --nproc-per-node", f"{np} ranks and {chosen.np} ranks asked for", hint)
    return chosen.np if np is None else np


def _placement(options: RunOptions, faults: Faults) -> Placement:
    if options.map_by in tuple(Placement):
        return Placement(options.map_by)
    faults.add("--map-by", f"{options.map_by!r} is unknown", "use slot or node")
    return Placement.SLOT


def _required(options: RunOptions, faults: Faults) -> tuple[str, ...]:
    """Return the words of ``--require``, once each."""
    if options.require:
        from ringleader.fabric.transport_proof.requirement import parse_requirement  # few need it

        with collected(faults.found):
            return parse_requirement(options.require).words
    return ()


def variables_of(
    options: CommandOptions, environ: Mapping[str, str], read: ReadText, faults: Faults
) -> dict[str, str]:
    """Return what the files set and then what ``-x`` sets: the later wins."""
    parts: list[Variables] = []
    for path in options.env_file:
        text = faults.text_of("--env-file", path, read)
        if text is not None:
            parts.append(parse_env_file(text, environ, path))
    parts.append(parse_assignments(options.x, environ))
    for part in parts:
        faults.found += part.faults
    return {name: value for part in parts for name, value in part.values}


def _timeline(options: RunOptions, current_dir: str) -> dict[str, str]:
    """Return the variable that tells the ranks' engines of ``--timeline``."""
    if options.timeline is None:
        return {}
    dynamic = options.timeline.upper() == "DYNAMIC"
    return {"RINGLEADER_TIMELINE": "DYNAMIC" if dynamic else _absolute(current_dir, options.timeline)}


def _autotune(options: RunOptions) -> dict[str, str]:
    """Return the variable that tells the ranks' optimizers of ``--autotune``."""
    return {"RINGLEADER_AUTOTUNE": "1"} if options.autotune else {}


def _absolute(current_dir: str, path: str | None) -> str:
    """Return a path as the ranks need it: they start elsewhere."""
    if path is None:
        return current_dir
    return path if path.startswith("/") else f"{current_dir.rstrip('/')}/{path}"
