"""Options of ``horovodrun`` become a ``Job``, with words about those that change nothing. Touches nothing.

The rules behind it: ranks see all GPUs of their host and pick one by their local rank, as Horovod's scripts
do; on this machine there are as many ranks as asked for, however many cores or GPUs it has; ranks on other
hosts get the whole environment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ringleader.errors import Fault, collected
from ringleader.horovod_run import (
    START_TIMEOUT,
    accepts_new_host_keys,
    elastic_options,
    mpirun_words,
    seconds_of,
)
from ringleader.option_fields import words_of
from ringleader.plan.batch_system import find_allocation
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.host_list import merge_hosts, parse_host_list, parse_hostfile
from ringleader.plan.job import Host, Job, Ssh
from ringleader.render.mpirun_command import KEPT, OUTER_MPI
from ringleader.render.rank_environment import NEVER_FORWARDED, OF_THE_COMMAND_LINE, RESERVED
from ringleader.runner.command_line import set_env_from_args
from ringleader.runner.option_table import NO_GLOO, OPTIONS, HorovodrunOptions
from ringleader.runner.settings import is_exportable

OUR_MPI, OUR_SSH_CONFIG = f"{OF_THE_COMMAND_LINE}RUN_MPI", f"{OF_THE_COMMAND_LINE}RUN_SSH_CONFIG"
"""Defaults of ``ringleader run`` that count here too: Horovod has no options for them."""

ReadText = Callable[[str], str]
"""Takes a path, returns the file's text; raises OSError or UnicodeDecodeError."""

TCP_ONLY = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "^openib,ofi,uct,usnic",
    "FI_PROVIDER": "tcp",
    "UCX_TLS": "tcp,sm,self",
}
"""What ``--tcp`` says to the MPIs; the user's own setting of one counts before."""
OF_ELASTIC_JOBS = ("slots", "elastic_timeout", "reset_limit", "cooldown_range")
"""Options that say how an elastic job changes, and make none."""
NOT_ELASTIC = "the job is not elastic without --min-np or --host-discovery-script"
OF_FOUND_HOSTS = "slots of hosts are written behind their names, in -H or the hostfile"
EXAMPLE = "horovodrun -np 2 python train.py"
"""Hint to a command line that says too little."""
OF_ONE_HOST = (
    "HOME", "USER", "LOGNAME", "SHELL", "PWD", "HOSTNAME", "HOST", "TMPDIR", "TERM", "DISPLAY", "MAIL", "_",
    "SHLVL", "XAUTHORITY",
)  # fmt: skip
"""Variables that say something of this machine or this login; a rank elsewhere has its own."""
_OF_ONE_LOGIN = ("SSH_", "XDG_", "DBUS_", "SLURM_", "SLURMD_", "PBS_", "LSB_", OF_THE_COMMAND_LINE)
_NO_BINDING = re.compile(r"-?-bind-to[ =]none")


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """What ``horovodrun`` was asked for."""

    job: Job
    """``job.faults`` holds what is wrong with it."""
    notes: tuple[str, ...] = ()
    """What the user should know although the job continues."""
    variables: tuple[tuple[str, str], ...] = ()
    """Variables that the options set for the ranks."""


def job_request(
    options: HorovodrunOptions, *, environ: Mapping[str, str], read: ReadText, current_dir: str
) -> JobRequest:
    """Return the job. ``read`` is used for the hostfile, and for files that LSF names."""
    faults: list[Fault] = []
    hosts = _hosts(options, environ, read, faults)
    if options.num_proc is None and not hosts and not options.host_discovery_script:
        faults.append(Fault(where="-np", what="is missing", hint=EXAMPLE))
    if not options.command:
        faults.append(Fault(where="COMMAND", what="nothing to run", hint=EXAMPLE))
    elastic: ElasticOptions | None = None
    with collected(faults):
        elastic = elastic_options(vars(options), environ)
    slots = sum(host.slots or 0 for host in hosts)
    if options.num_proc is not None and all(host.slots for host in hosts) and 0 < slots < options.num_proc:
        named = ",".join(f"{host.name}:{host.slots}" for host in hosts)
        what = f"{options.num_proc} ranks asked for, {slots} slots there ({named})"
        faults.append(Fault(where="-np", what=what, hint="ask for fewer ranks, or write more slots"))
    notes = _unused(options, elastic)
    words, bind = _words(options, faults, notes)
    variables: dict[str, str] = {}
    set_env_from_args(variables, options)
    if options.tcp_flag:
        variables |= {name: value for name, value in TCP_ONLY.items() if name not in environ}
    elsewhere = bool(hosts or options.host_discovery_script)
    carried = forwarded(environ) if elsewhere else {}
    accept_new = bool(options.accept_new_host_keys)
    with collected(faults):
        accept_new = accept_new or accepts_new_host_keys(environ)
    job = Job(
        command=options.command,
        np=options.num_proc,
        hosts=hosts,
        mpi=environ.get(OUR_MPI) or None,
        ssh=Ssh(
            port=options.ssh_port,
            identity=options.ssh_identity_file,
            config=environ.get(OUR_SSH_CONFIG) or None,
            accept_new=accept_new,
        ),
        oversubscribe=not elsewhere,
        share_gpus=True,
        all_gpus=True,
        bind=bind,
        network_interface=",".join(sorted(options.nics)) if options.nics else None,
        env=tuple((carried | variables).items()),
        output_dir=options.output_filename,
        start_timeout=_start_timeout(options, environ, faults),
        workdir=current_dir,
        as_horovod=True,
        elastic=elastic,
        extra_mpirun_args=words,
    )
    return JobRequest(
        job=replace(job, faults=tuple(faults)), notes=tuple(notes), variables=tuple(variables.items())
    )


def forwarded(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what ranks on other hosts get of the caller's environment: all but what belongs to one host."""
    return {
        name: value
        for name, value in environ.items()
        if is_exportable(name)
        and name not in OF_ONE_HOST
        and name not in RESERVED
        and name not in NEVER_FORWARDED
        and not name.startswith(_OF_ONE_LOGIN)
        and (name.startswith(KEPT) or not name.startswith(OUTER_MPI))
    }


def same_command(request: JobRequest) -> str:
    """Return the ``ringleader run`` that does the same, as a line of a shell."""
    job, elastic = request.job, request.job.elastic
    words = ["ringleader", "run", "--all-gpus", *words_of(job, Job(require=job.require, workdir=job.workdir))]
    if job.hosts:
        words += ["-H", ",".join(f"{host.name}:{host.slots or 1}" for host in job.hosts)]
    if elastic is not None:
        is_found = elastic.discovery_script is not None
        words += ["--min-np", str(elastic.min_np)]
        words += words_of(
            replace(elastic, slots=elastic.slots if is_found else None, min_np=1), ElasticOptions()
        )
    for name, value in request.variables:
        words += ["-x", f"{name}={value}"]
    return shlex.join([*words, *job.command])


def _hosts(
    options: HorovodrunOptions, environ: Mapping[str, str], read: ReadText, faults: list[Fault]
) -> tuple[Host, ...]:
    """Return the hosts that are named, in an LSF job else its own; empty: this machine."""
    if options.hosts is not None and options.hostfile is not None:
        what, hint = "only one of them can name the hosts", "leave one of them out"
        faults.append(Fault(where="-H and --hostfile", what=what, hint=hint))
    elif options.hosts is not None:
        parsed = parse_host_list(options.hosts, "-H")
        faults += parsed.faults
        return parsed.hosts
    elif options.hostfile is not None:
        try:
            parsed = parse_hostfile(read(options.hostfile), options.hostfile)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a text file (UTF-8)"
            what = f"{options.hostfile} cannot be read: {reason}"
            faults.append(Fault(where="--hostfile", what=what))
            return ()
        faults += parsed.faults
        return merge_hosts(parsed.hosts)
    elif options.use_jsrun or any(name in environ for name in ("LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE")):
        allocation = find_allocation({name: environ[name] for name in environ if name[:4] == "LSB_"}, read)
        if allocation is not None:
            faults += allocation.faults
            return allocation.hosts
        hint = "use it inside an LSF job, or name the hosts with -H"
        faults.append(Fault(where="--jsrun", what="this is not an LSF job", hint=hint))
    return ()


def _unused(options: HorovodrunOptions, elastic: ElasticOptions | None) -> list[str]:
    """Return a sentence for each reason why options that are given change nothing."""
    by_reason: dict[str, list[str]] = {}
    for name, option in OPTIONS.items():
        value = getattr(options, name)
        if option.unused and value is not None:
            spelling = option.off[0] if value is False and option.off else option.names[0]
            by_reason.setdefault(option.unused, []).append(spelling)
    if elastic is None:
        asked = [name for name in OF_ELASTIC_JOBS if getattr(options, name) is not None]
        by_reason |= {NOT_ELASTIC: [OPTIONS[name].names[0] for name in asked]} if asked else {}
    elif elastic.discovery_script is None and options.slots is not None:
        by_reason[OF_FOUND_HOSTS] = ["--slots-per-host"]
    if options.use_gloo:
        by_reason[NO_GLOO] = ["--gloo"]
    if options.use_jsrun:
        by_reason["mpirun starts the ranks, over ssh"] = ["--jsrun"]
    return [
        f"{', '.join(names)} {'changes' if len(names) == 1 else 'change'} nothing here: {reason}"
        for reason, names in by_reason.items()
    ]


def _words(options: HorovodrunOptions, faults: list[Fault], notes: list[str]) -> tuple[tuple[str, ...], str]:
    """Return the words for mpirun, and how ranks are bound to cores."""
    words: tuple[str, ...] = ()
    with collected(faults):
        words = mpirun_words(options.mpi_args or "")
    binding = f"{options.binding_args or ''} {options.mpi_args or ''}"
    if _NO_BINDING.search(binding):
        return words, "none"
    if options.binding_args:
        why = "each rank is bound to its share of the host's cores; '--bind-to none' lets them roam"
        notes.append(f"--binding-args changes nothing here: {why}")
    return words, "auto"


def _start_timeout(options: HorovodrunOptions, environ: Mapping[str, str], faults: list[Fault]) -> float:
    """Return the seconds that the option says, else the variable, else ours."""
    if options.start_timeout:
        if options.start_timeout < 0:
            faults.append(Fault(where="--start-timeout", what=f"{options.start_timeout} seconds"))
        return float(abs(options.start_timeout))
    seconds = None
    with collected(faults):
        seconds = seconds_of(environ, START_TIMEOUT)
    return Job.start_timeout if seconds is None else seconds
