"""The command line of ``ringleader scale``, and the stored run it resumes, become a ``Sitting``."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ringleader.agents.training_progress import cpu_model
from ringleader.agents.usable_cores import usable_cpus
from ringleader.bench import run_file
from ringleader.bench.resumption import changed_hosts, changed_request, host_words
from ringleader.bench.scale import Scale, turns_of
from ringleader.bench.turn_order import Turn, turns_left
from ringleader.cli.options.kubernetes_options import PLACES, misplaced_options
from ringleader.cli.run.command import check_ssh_files, read_job
from ringleader.cli.scale.scale_options import ScaleOptions, make_scale, stamp, threads_for
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import faults_of_words, given, has_wrong_word, options_of, spelling
from ringleader.errors import Fault, RefusedError, RequestError, refuse
from ringleader.option_fields import parts
from ringleader.plan.job import Job
from ringleader.render.rank_environment import is_secret
from ringleader.scaling import Request, Run

if TYPE_CHECKING:
    from ringleader.cli.scale.cluster_jobs import ClusterJobs

_CALL = "command grid repeats name output replace resume dry_run sizes json json_file no_page"
_OF_THIS_CALL = frozenset(_CALL.split())
"""Parameters that belong to one call: they are not kept with the run, or elsewhere in it."""
_NAMES_HOSTS = frozenset(["hosts", "hostfile", "lab", "lab_name", "on", "nnodes", "nproc_per_node"])
_HOW = (
    "no_allocation ssh_port ssh_identity ssh_config accept_new_host_keys timeout grace lost_after "
    "start_timeout baseline context kubeconfig in_step budget"
)
_MAY_DIFFER = _OF_THIS_CALL | _NAMES_HOSTS | set(_HOW.split())
"""Options that may be given anew: they change nothing that is measured, or ``bench.resumption`` compares."""


def kept_words(ctx: click.Context) -> tuple[str, ...]:
    """Return the options of this call as words, wherever they were set, without values that sound secret."""
    return _words(ctx, _set_values(ctx))


def _set_values(ctx: click.Context) -> dict[str, Any]:
    """Return the values that were set, of options that are kept with the run."""
    found = {}
    for name, value in ctx.params.items():
        is_default = ctx.get_parameter_source(name) in (ParameterSource.DEFAULT, None)
        if name not in _OF_THIS_CALL and not is_default and value is not False and value not in (None, ()):
            found[name] = value
    return found


def _words(ctx: click.Context, values: Mapping[str, Any]) -> tuple[str, ...]:
    words: list[str] = []
    for parameter in ctx.command.params:
        name, value = parameter.name or "", values.get(parameter.name or "")
        for one in () if value is None else value if isinstance(value, tuple) else (value,):
            words += _option(spelling(parameter), one, name)
    return tuple(words)


def _option(option: str, value: object, name: str) -> list[str]:
    if value is True:
        return [option]
    text = f"{value:.12g}" if isinstance(value, float) else str(value)
    if name == "x" and is_secret(text.partition("=")[0]):
        text = text.partition("=")[0]
    return [f"{option}={text}"] if option.startswith("--") else [option, text]


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
    values = _set_values(kept)
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
    return options_of(ScaleOptions, merged, faults=wrong), _words(ctx, values)


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
            what = f"the run was measured with {_shown(old)}; it cannot go on with {_shown(new)}"
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
class Sitting:
    """What this call measures, and what it goes on with."""

    wanted: Scale
    stored: Run | None = None
    """The run that is resumed."""
    directory: Path | None = None
    """Of that run; a new one is made."""
    cluster: ClusterJobs | None = None
    """What starts the runs on Kubernetes; ``None``: they run on hosts."""
    in_allocation: bool = False
    """A batch system gave the hosts, so that their names differ from one sitting to the next."""

    def turns_left(self, measured: Run | None) -> tuple[Turn, ...]:
        """Return the runs that are still to be made where so much is measured."""
        return turns_left(turns_of(self.wanted), measured)


def read_sitting(options: ScaleOptions, line: ProgressLine) -> Sitting:
    """Read the command line to the end, and the run to resume; RequestError with all faults of each step."""
    context = click.get_current_context()
    if options.resume is None:
        own = {part.parameter for part in parts(ScaleOptions) if part.kind is None}
        if wrong := misplaced_options(context, options.hosts.on, own):
            raise RequestError((*faults_of_words(context), *wrong))
        return _sitting(options, kept_words(context), line)
    directory = _resumed_directory(options)
    stored = run_file.read(directory)
    if not options.dry_run and not os.access(directory, os.W_OK):
        raise RefusedError("cannot be written to", where=str(directory))
    options, words = resumed_options(context, stored)
    sitting = replace(_sitting(options, words, line, stored), directory=directory)
    refuse(changed_request(stored, sitting.wanted, same_hosts=not sitting.in_allocation))
    return sitting


def _sitting(
    options: ScaleOptions, words: tuple[str, ...], line: ProgressLine, stored: Run | None = None
) -> Sitting:
    """``words``: the options to be kept with the run."""
    if options.hosts.on in PLACES:
        from ringleader.cli.scale.cluster_jobs import cluster_sitting

        wanted, cluster = cluster_sitting(options, words, stored)
        return Sitting(wanted=wanted, stored=stored, cluster=cluster)
    where = options.hosts
    job, chosen = read_job(options.job, options.ranks, where, environ=os.environ, say=line.keep)
    check_ssh_files(job)
    wanted = make_scale(options, job, cores=usable_cpus(), stamp=stamp(), lab=where.wants_lab, stored=stored)
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
    cores = {"localhost": usable_cpus()}
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
        if sitting.in_allocation:  # a batch system gave others: each stands for one of those before
            cores = dict(zip((host.name for host in stored.context.hosts), cores.values(), strict=False))
        refuse(changed_hosts(stored, cores))
    return replace(sitting, wanted=replace(wanted, job=replace(wanted.job, threads=threads)))
