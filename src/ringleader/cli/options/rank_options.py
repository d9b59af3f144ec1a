"""What a command line says of ranks in other words than a ``Job``, and how both become the job to be run.

Touches nothing: files are handed in. `host_options` says where a job runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ringleader.cli.options.host_options import Chosen
from ringleader.cli.options.option_checks import Faults, ReadText
from ringleader.cli.options.rank_variables import Variables, parse_assignments, parse_env_file
from ringleader.elastic_options import COOLDOWN, ElasticOptions
from ringleader.errors import collected
from ringleader.job import Job
from ringleader.option_fields import flag, many, option, parts
from ringleader.value_class import dataclass


@dataclass(frozen=True, kw_only=True)
class RankOptions:
    """What becomes variables of the ranks, and the opposite of ``--own-gpu``."""

    all_gpus: bool = flag(
        "Let every rank see all GPUs of its host, the default: scripts pick that of their local rank.",
        after="share_gpus",
        where="scale",
    )
    x: tuple[str, ...] = many(
        "Set a variable for every rank, or pass yours on; may be given again.",
        "-x",
        metavar="NAME[=VALUE]",
        after="master_port threads",
        where="scale bench cluster",
    )
    env_file: tuple[str, ...] = many(
        "Set the variables of a file.", metavar="FILE", after="x", where="scale bench cluster"
    )
    timeline: str | None = option(
        "Rank 0 writes what its operations go through as a Chrome trace; with {rank} in the name every rank "
        "writes one. DYNAMIC lets the script start and stop it.",
        metavar="FILE",
        after="no_settings",
    )
    autotune: bool = flag(
        "Try sizes of buckets, and sizes at which arrays go another way, during the first steps of a "
        "training; go on with the best and say which.",
        after="timeline env_file",
        where="cluster",
    )


def make_job(
    asked: Job,
    ranks: RankOptions,
    *,
    chosen: Chosen,
    environ: Mapping[str, str],
    read: ReadText,
    current_dir: str,
) -> Job:
    """Return the job that was asked for on the hosts that were chosen; what is wrong is in its ``faults``.

    ``read`` is only used for the files of ``--env-file``.
    """
    faults = Faults(found=[*asked.faults, *chosen.faults])
    np = asked.np if chosen.np is None else chosen.np
    if asked.np not in (None, np):
        hint = "leave out -n, or torchrun's options"
        faults.add("-n and --nproc-per-node", f"{asked.np} ranks and {np} ranks asked for", hint)
    variables = variables_of(ranks, environ, read, faults)
    if ranks.timeline is not None:
        is_dynamic = ranks.timeline.upper() == "DYNAMIC"
        file = "DYNAMIC" if is_dynamic else _absolute(current_dir, ranks.timeline)
        variables["RINGLEADER_TIMELINE"] = file
    if ranks.autotune:
        variables["RINGLEADER_AUTOTUNE"] = "1"
    if ranks.all_gpus and not asked.all_gpus:
        faults.add("--own-gpu", "contradicts --all-gpus", "leave one out; all GPUs are seen by default")
    require = asked.require
    if require:
        from ringleader.fabric.transport_proof.requirement import parse_requirement  # few need it

        with collected(faults.found):
            require = parse_requirement(require).words
    return replace(
        asked,
        np=np,
        hosts=chosen.hosts,
        ssh=chosen.ssh,
        env=tuple(variables.items()),
        require=require,
        workdir=_absolute(current_dir, asked.workdir) if asked.workdir else current_dir,
        faults=tuple(faults.found),
    )


def variables_of(
    options: RankOptions, environ: Mapping[str, str], read: ReadText, faults: Faults
) -> dict[str, str]:
    """Return what the files set and then what ``-x`` sets: the later wins."""
    found: list[Variables] = []
    for path in options.env_file:
        text = faults.text_of("--env-file", path, read)
        if text is not None:
            found.append(parse_env_file(text, environ, path))
    found.append(parse_assignments(options.x, environ))
    for one in found:
        faults.found += one.faults
    return {name: value for one in found for name, value in one.values}


def elastic_options(
    given: Mapping[str, Any],
    *,
    np: int | None,
    hostfile: str | None,
    slurm_job: str | None = None,
    faults: Faults,
) -> ElasticOptions | None:
    """Return how a job may change; ``None``: it does not. Faults are noted.

    ``given``: those fields of ElasticOptions that were set. ``slurm_job``: Slurm's number of the job whose
    nodes are the hosts.
    """
    if not given.keys() & {"min_np", "max_np", "discovery_script", "min_hosts", "max_hosts"}:
        spellings = {part.name: part.spelling for part in parts(ElasticOptions)}
        for name in given:
            hint = "add --min-np, --max-np or --host-discovery-script"
            faults.add(spellings[name], "is for elastic jobs", hint)
        return None
    script = given.get("discovery_script")
    if script is not None and hostfile is not None:
        faults.add("--host-discovery-script and --hostfile", "only one of them can name the hosts", "")
    follows = script is not None or hostfile or slurm_job
    found = ElasticOptions(
        min_np=np if script is not None and np is not None else 1,
        cooldown=COOLDOWN if follows else None,
        hostfile=hostfile,
        slurm_job=slurm_job,
    )
    return replace(found, **given)


def _absolute(current_dir: str, path: str) -> str:
    """Return a path as the ranks need it: they start elsewhere."""
    return path if path.startswith("/") else f"{current_dir.rstrip('/')}/{path}"
