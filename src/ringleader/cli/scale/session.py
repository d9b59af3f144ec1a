"""One call of ``ringleader scale``: its command line and the run that it resumes become a `Session`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ringleader.agents.training_progress import cpu_model
from ringleader.agents.usable_cores import usable_cpus
from ringleader.bench import run_file
from ringleader.bench.scale.measurement import ScaleRequest
from ringleader.bench.scale.sizes import host_words, hosts_for
from ringleader.cli.kept_words import kept_words, set_values, words_of
from ringleader.cli.options.kubernetes_options import PLACES, misplaced_options
from ringleader.cli.run.command import check_ssh_files, gated, read_job
from ringleader.cli.scale.options import ScaleOptions, make_request, threads_for
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import faults_of_words, given, has_wrong_word, options_of, spelling
from ringleader.errors import Fault, RefusedError, RequestError, refuse
from ringleader.option_fields import parts
from ringleader.plan.job import Host, Job, check
from ringleader.scaling import Context, Request, Run, Size

if TYPE_CHECKING:
    from ringleader.cli.scale.kubernetes_jobs import KubernetesJobs

_CALL = "command grid repeats name output replace resume dry_run sizes json json_file no_page job_per_size"
_OF_THIS_CALL = frozenset(_CALL.split())
"""Parameters that belong to one call: they are not kept with the run, or elsewhere in it."""
_NAMES_HOSTS = frozenset(["hosts", "hostfile", "lab", "lab_name", "on", "nnodes", "nproc_per_node"])
_HOW = (
    "no_allocation ssh_port ssh_identity ssh_config accept_new_host_keys timeout grace lost_after "
    "start_timeout baseline context kubeconfig in_step budget check spare_hosts kernel_log"
)
_MAY_DIFFER = _OF_THIS_CALL | _NAMES_HOSTS | set(_HOW.split())
"""Options that may be given anew: they change nothing that is measured, or `changed_request` compares."""


def resumed_options(ctx: click.Context, stored: Run) -> tuple[ScaleOptions, tuple[str, ...]]:
    """Return the stored options with those of this call over them, and the words to be kept from now on.

    RequestError where they disagree.
    """
    words = () if stored.request is None else stored.request.options
    kept = ctx.command.make_context("scale", list(words))
    now = {parameter.name or "": parameter for parameter in given(ctx)}
    wrong = tuple(faults_of_words(ctx))
    faults = _disagreeing(now, ctx.params, kept.params, wrong=has_wrong_word(ctx))
    if "replace" in now:
        hint = "leave out one of the two: --resume keeps what was measured, --replace writes over it"
        faults.append(Fault(where="--resume and --replace", what="contradict each other", hint=hint))
    if faults:
        raise RequestError((*wrong, *faults))
    values = set_values(kept, _OF_THIS_CALL)
    if now.keys() & _NAMES_HOSTS:
        values = {name: value for name, value in values.items() if name not in _NAMES_HOSTS}
    values |= {name: ctx.params[name] for name in now if name not in _OF_THIS_CALL | {"x"}}
    of_this_call = {name: ctx.params[name] for name in _OF_THIS_CALL if name in ctx.params}
    defaults = ctx.command.make_context("scale", []).params
    merged = defaults | values | of_this_call
    # A secret's value, which is not kept, is taken from the variables of now.
    variables = ctx.params["x"] if "x" in now else ()
    names = {one.partition("=")[0] for one in variables}
    merged["x"] = (*(one for one in merged["x"] if one not in names), *variables)
    merged["command"] = ctx.params["command"] or stored.context.command
    if "repeats" not in now:
        merged["repeats"] = stored.repeats
    return options_of(ScaleOptions, merged, faults=wrong), words_of(ctx, values)


def _disagreeing(
    now: Mapping[str, click.Parameter],
    params: Mapping[str, Any],
    kept: Mapping[str, Any],
    *,
    wrong: Collection[str],
) -> list[Fault]:
    """Return the options of this call that the stored run was measured without, or with another value.

    ``wrong``: parameters without a value, because their word is none.
    """
    found = []
    for name, parameter in now.items():
        old, new = kept.get(name), params[name]
        if name == "x":
            new = tuple(one for one in new if one.partition("=")[0] not in (old or ()))
            same = set(new) <= set(old or ())
        else:
            same = old == new
        if name not in _MAY_DIFFER | set(wrong) and not same:
            what = f"the run was measured with {_shown(old)}; it cannot continue with {_shown(new)}"
            hint = "leave it out, or begin a new run with another --name"
            found.append(Fault(where=spelling(parameter), what=what, hint=hint))
    return found


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "it" if value else "it off"
    return "the default" if value is None else str(value)


@dataclass(frozen=True, kw_only=True)
class Session:
    """What this call measures, and what it resumes."""

    asked: ScaleRequest
    directory: Path | None = None
    """Of the run that is resumed; ``None``: one is made."""
    cluster: KubernetesJobs | None = None
    """What starts the runs on Kubernetes; ``None``: they run on hosts."""
    in_allocation: bool = False
    """A batch system gave the hosts, so that their names differ from one session to the next."""


def read_session(options: ScaleOptions, line: ProgressLine) -> Session:
    """Read the command line to the end, and the run to resume; RequestError with all faults of each step."""
    context = click.get_current_context()
    is_later = options.job_per_size or os.environ.get("SLURM_RESTART_COUNT", "0") != "0"
    known = Path(options.output, options.name or "", run_file.FILE)
    if options.resume is None and not (is_later and known.is_file()):
        if wrong := _misplaced(context, options):
            raise RequestError((*faults_of_words(context), *wrong))
        return _session(options, kept_words(context, _OF_THIS_CALL), line)
    directory = _resumed_directory(options)
    stored = run_file.read(directory)
    if not options.dry_run and not os.access(directory, os.W_OK):
        raise RefusedError("cannot be written to", where=str(directory))
    options, words = resumed_options(context, stored)
    session = replace(_session(options, words, line, stored), directory=directory)
    lab, same_hosts = options.hosts.wants_lab, not session.in_allocation
    refuse(changed_request(stored, session.asked, lab=lab, same_hosts=same_hosts))
    return session


def _misplaced(context: click.Context, options: ScaleOptions) -> list[Fault]:
    """Return the options of this call that mean nothing at its place, or contradict each other."""
    own = {part.parameter for part in parts(ScaleOptions) if part.kind is None}
    return [*misplaced_options(context, options.hosts.on, own), *_faults_of_jobs(options)]


def _faults_of_jobs(options: ScaleOptions) -> Iterator[Fault]:
    """Yield what contradicts a run that several jobs in Slurm add to."""
    if options.job_per_size and options.hosts.on != "slurm":
        yield Fault(where="--job-per-size", what="is for jobs in Slurm", hint="add --on slurm")
    why = "--job-per-size" if options.job_per_size else "--requeue" if options.slurm.requeue else ""
    resumes = options.job_per_size and options.resume is not None
    for name, is_given in (("--resume", resumes), ("--replace", options.replace)):
        if why and is_given:
            hint = f"leave out {name}: the run that --name names is continued, or begun"
            yield Fault(where=f"{why} and {name}", what="contradict each other", hint=hint)


def request_in_slurm(options: ScaleOptions) -> tuple[Job, tuple[Size, ...]]:
    """Return the job that is measured in Slurm, checked as far as that can be done without its nodes, and the
    sizes; of a run that is resumed, no sizes.

    RequestError with every fault.
    """
    context, batch = click.get_current_context(), options.slurm
    refuse((*faults_of_words(context), *_misplaced(context, options)))
    job, _ = read_job(options.job, options.ranks, options.hosts, environ=os.environ)
    if options.resume is not None:
        return job, ()  # the run says what else there must be
    if batch.nodes is None:
        hint = "the number of the largest size: --nodes 4 --ntasks-per-node 2, or --gpus 8"
        refuse((*job.faults, Fault(where="--nodes", what="is needed: sizes are made of nodes", hint=hint)))
    slots = batch.ntasks_per_node or batch.gpus or 1
    count = int((batch.nodes or "1").partition("-")[0])
    hosts = tuple(Host(name=f"node-{number}", slots=slots) for number in range(count))
    return job, make_request(options, without_spares(replace(job, hosts=hosts)), Request(), cores=1).sizes


def _session(
    options: ScaleOptions, words: tuple[str, ...], line: ProgressLine, stored: Run | None = None
) -> Session:
    """``words``: the options to be kept with the run."""
    where = options.hosts
    if where.on in PLACES:
        from ringleader.cli.scale.kubernetes_jobs import kubernetes_request

        asked, cluster = kubernetes_request(options, words, stored)
        return Session(asked=asked, cluster=cluster)
    job, chosen = read_job(options.job, options.ranks, where, environ=os.environ, say=line.keep)
    check_ssh_files(job)
    if job.check is not None and not (options.dry_run or options.sizes):
        text = "ringleader: {}".format
        job = gated(
            check(job), environ=os.environ, progress=line.show, warn=lambda _, why: line.keep(text(why))
        )
    job = without_spares(job)
    script, digest = script_of(job)
    hosts = host_words(job.hosts)
    request = Request(options=words, workdir=job.workdir, hosts=hosts, script=script, script_digest=digest)
    most = len(job.hosts) if options.job_per_size else None
    asked = make_request(
        *(options, job, request), cores=usable_cpus(), lab=where.wants_lab, stored=stored, most_hosts=most
    )
    return Session(asked=replace(asked, cpu=cpu_model()), in_allocation=chosen.allocation is not None)


def without_spares(job: Job) -> Job:
    """Return the job on the hosts that sizes are made of; that too few are left is a fault of the job."""
    left = job.hosts[: max(0, len(job.hosts) - job.spare_hosts)]
    return replace(job, hosts=left, spare_hosts=0) if left else job


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


def with_threads(session: Session, line: ProgressLine) -> Session:
    """Probe all hosts before anything long starts; give every rank the same threads at every size."""
    asked, known = session.asked, session.asked.run.context
    if session.cluster is not None:
        return session
    cores = {"localhost": usable_cpus()}
    if asked.job.hosts:
        from ringleader.launch.host_probe.probe import probe

        found = probe(asked.job, environ=os.environ, progress=line.show)
        if found.ssh is not None:
            found.ssh.close()
        cores = {facts.host.name: len(facts.cpus) for facts in found.facts}
    if session.directory is None:
        threads = threads_for(asked.job, asked.sizes, list(cores.values()), os.environ)
    else:
        threads = known.threads  # a larger size must not change those of the others
        if session.in_allocation:  # a batch system gave others: each stands for one of those before
            cores = dict(zip((host.name for host in known.hosts), cores.values(), strict=False))
        refuse(changed_hosts(known, cores))
    return replace(session, asked=replace(asked, job=replace(asked.job, threads=threads)))


# --- what must not have changed ---------------------------------------------------------------------------

_ANEW = "begin a new run with another --name; ringleader report compares the two"


def changed_request(stored: Run, asked: ScaleRequest, *, lab: bool, same_hosts: bool) -> list[Fault]:
    """Return what is asked for otherwise than the stored run was, so that its numbers would not belong to it.

    Its options are those of the stored run, and `resumed_options` compares those that are given again.
    ``lab``: the hosts are a lab's. ``same_hosts``: they must have the same names. In a batch allocation they
    change from job to job, and only their cores count (``changed_hosts``).
    """
    run, before, now = asked.run, stored.request, asked.run.request or Request()
    if before is None or not before.workdir:
        what = "was kept by a version of Ringleader that could not resume"
        return [Fault(where=stored.name, what=what, hint=_ANEW)]
    pairs: tuple[tuple[str, object, object], ...] = (
        ("COMMAND", " ".join(stored.context.command), " ".join(asked.job.command)),
        ("working directory", before.workdir, now.workdir),
        ("--bind", stored.context.binding, asked.job.bind),
        ("--lab", stored.context.lab, lab),
    )
    found = [
        Fault(where=where, what=f"was {_changed(old)}, is {_changed(new)} now", hint=_ANEW)
        for where, old, new in pairs
        if old != new
    ]
    is_same_call = not {"COMMAND", "working directory"} & {fault.where for fault in found}
    if is_same_call and before.script_digest not in ("", now.script_digest):
        what = f"{before.script} has changed since" if now.script_digest else "does not exist any more"
        found.append(Fault(where=before.script, what=what, hint=_ANEW))
    if run.repeats < stored.repeats:
        what = f"{run.repeats} repetitions; the run has {stored.repeats} already"
        found.append(Fault(where="--repeats", what=what, hint="ask for as many or more"))
    return found + (_other_hosts(stored, before, asked.job) if same_hosts else [])


def _changed(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not given" if value in (None, "") else str(value)


def _other_hosts(stored: Run, before: Request, job: Job) -> list[Fault]:
    """Return the sizes that would run on other hosts than their first repetitions did."""
    found = []
    hosts = tuple(map(_host, before.hosts))
    for point in stored.points:
        old, new = (hosts_for(point.size, one, oversubscribe=job.oversubscribe) for one in (hosts, job.hosts))
        if any(samples for _kind, samples in point.kinds) and old != new:
            what = f"ran on {_names(old)}, would run on {_names(new)} now"
            found.append(Fault(where=point.name, what=what, hint="name the same hosts in the same order"))
    return found


def _host(word: str) -> Host:
    name, _, slots = word.rpartition(":")
    return Host(name=name, slots=int(slots)) if name and slots.isdigit() else Host(name=word)


def _names(hosts: Sequence[Host] | None) -> str:
    if hosts is None:
        return "too few hosts"
    return ", ".join(host.name for host in hosts) or "this machine"


def changed_hosts(known: Context, cores: Mapping[str, int]) -> list[Fault]:
    """Return hosts that have another number of cores than before. ``cores``: by the name the user gives."""
    return [
        Fault(
            where=host.name,
            what=f"had {host.cores} cores for its ranks, has {cores[host.name]} now",
            hint=_ANEW,
        )
        for host in known.hosts
        if host.cores is not None and cores.get(host.name, host.cores) != host.cores
    ]
