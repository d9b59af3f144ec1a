"""The batch script of a job: options for sbatch, and one command whose words are quoted. Pure.

`controller` sends it. Its command is ``ringleader run`` or ``scale``, which find the allocation themselves.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from ringleader.errors import Fault
from ringleader.option_fields import LEAST, WrongValueError, flag, many, option
from ringleader.value_class import dataclass

SAVING = 60.0
"""Seconds before the time limit, besides ``--grace``, at which a job is asked to end."""
EARLIER = 60.0
"""Seconds by which Slurm may send a signal too early (sbatch(1), ``--signal``)."""
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_OURS = ("--array", "--parsable", "--requeue", "--no-requeue", "--signal", "--test-only", "--wait", "--wrap")
"""Options of sbatch that would change what the script is, or what sbatch answers."""
_OUR_LETTERS = re.compile("-[HIOQhksv]*[aW]")
"""``--array`` and ``--wait`` as letters, also behind letters without a value."""


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.,+@%/:-]*[A-Za-z0-9_]", text) or text.startswith("-"):
        raise WrongValueError(f"{text[:80]!r} is not a name that Slurm takes", "letters, digits, _ . - ,")
    return text


def _nodes(text: str) -> str:
    first, _, last = text.partition("-")
    numbers = re.fullmatch(r"[1-9]\d{0,6}(-[1-9]\d{0,6})?", text)
    if not numbers or (last and int(last) < int(first)):
        raise WrongValueError(f"{text[:80]!r} is not a number of nodes", "write 2, or a range: 2-4")
    return text


def _time(text: str) -> str:
    if seconds_of(text) == 0:
        hint = "write 2:00:00 (hours:minutes:seconds), 1-12 (days-hours) or 90 (minutes)"
        raise WrongValueError(f"{text[:80]!r} is not a time", hint)
    return text


def _sbatch_word(text: str) -> str:
    name = text.partition("=")[0]
    if not text.startswith("-") or not text.isprintable():
        raise WrongValueError(f"{text[:80]!r} is not an option of sbatch", "such as --constraint=a100")
    if _OUR_LETTERS.match(text) or any(one.startswith(name) for one in _OURS):  # sbatch takes beginnings
        raise WrongValueError(f"{name} is set by Ringleader", "leave it out; --requeue is an option of ours")
    return text


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """What Slurm is asked for."""

    SECTION: ClassVar[str] = "Options in Slurm (--on slurm)"
    """Their heading in the help."""
    partition: str | None = option("Partition. [default: the cluster's]", metavar="NAME", read=_name)
    account: str | None = option("Account. [default: yours]", metavar="NAME", read=_name)
    time: str | None = option(
        "Time limit: 2:00:00, 90 (minutes), 1-12 (days-hours). [default: the partition's]",
        metavar="TIME",
        read=_time,
    )
    nodes: str | None = option(
        "Number of nodes, or a range. [default: as many as -n needs]", metavar="N[-M]", read=_nodes
    )
    ntasks_per_node: int | None = option(
        "Ranks on each node. [default: --gpus, else one]",
        metavar="N",
        least=1,
        wrong=LEAST,
    )
    gpus: int | None = option("GPUs of each node (not of the job).", metavar="N", least=0, wrong=LEAST)
    job_name: str | None = option("Job name. [default: the script's]", metavar="NAME", read=_name)
    requeue: bool = flag(
        "Stop the job shortly before it reaches its time limit and requeue it. Also requeue after a node "
        "failure."
    )
    sbatch_arg: tuple[str, ...] = many(
        "Pass one more option to sbatch: --sbatch-arg=--constraint=a100. Can be repeated.",
        metavar="WORD",
        read=_sbatch_word,
    )
    detach: bool = flag("Submit the job, print its ID, and exit.")


def seconds_of(text: str) -> float:
    """Return the seconds of a time limit as Slurm writes it; 0: it is none, infinity: there is no limit."""
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return math.inf
    match = _TIME.fullmatch(text)
    if match is None:
        return 0
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    if days is not None:  # days-hours[:minutes[:seconds]]
        parts = (days * 24 + (first or 0), second or 0, third or 0)
    elif third is not None:
        parts = (first or 0, second or 0, third)
    else:  # minutes[:seconds]
        parts = (0, first or 0, second or 0)
    return parts[0] * 3600 + parts[1] * 60 + parts[2]


def notice_seconds(grace: float) -> int:
    """Return how long before its time limit a job is asked to end."""
    return math.ceil(grace + SAVING)


def faults_of(options: BatchOptions, *, grace: float) -> list[Fault]:
    """Return what contradicts itself in what Slurm is asked for."""
    if not options.requeue or options.time is None:
        return []
    notice = notice_seconds(grace)
    if seconds_of(options.time) > notice + EARLIER:
        return []
    what = f"{options.time} is too short for --requeue: the job is asked to end {notice} s before its limit"
    least = math.floor((notice + EARLIER) / 60) + 1
    return [Fault(where="--time", what=what, hint=f"ask for {least} minutes or more, or lower --grace")]


def faults_of_spares(options: BatchOptions, *, spare: int, np: int | None) -> list[Fault]:
    """Return why this many spare hosts cannot be set aside of the nodes."""
    if spare <= 0:
        return []
    if options.nodes is None:
        hint = f"the job's nodes and the spare ones: --nodes {spare + 1}"
        return [Fault(where="--spare-hosts", what="requires --nodes in Slurm", hint=hint)]
    least = int(options.nodes.partition("-")[0])
    if spare >= least:
        what, hint = f"{spare} spare of {least} nodes leaves none to run on", "ask for more nodes"
        return [Fault(where="--spare-hosts", what=what, hint=hint)]
    if np is None or options.ntasks_per_node is not None:
        return []
    what = "requires --ntasks-per-node with --spare-hosts: Slurm spreads ranks over the spare nodes, too"
    return [Fault(where="-n", what=what, hint=f"--ntasks-per-node {math.ceil(np / (least - spare))}")]


def faults_of_export(
    options: BatchOptions, names: Collection[str], environ: Mapping[str, str]
) -> list[Fault]:
    """Return a fault where sbatch would not pass on these variables, whose values are not in the script."""
    given = [word for word in options.sbatch_arg if word.startswith(("--export=", "--export-file="))]
    setting = given[-1] if given else f"SBATCH_EXPORT={environ.get('SBATCH_EXPORT') or 'ALL'}"
    passed = setting.partition("=")[2].split(",")
    if not names or (not setting.startswith("--export-file") and "ALL" in [one.upper() for one in passed]):
        return []
    what = f"{', '.join(sorted(names))}: {setting} keeps it from the job: sbatch passes values of secrets"
    return [Fault(where="-x", what=what, hint="export ALL, or have the job read it from a file")]


def after(options: BatchOptions, number: str) -> BatchOptions:
    """Return the options with which a job begins once another one has done well; empty ``number``: alone."""
    if not number:
        return options
    words = (f"--dependency=afterok:{number}", "--kill-on-invalid-dep=yes")
    return replace(options, sbatch_arg=(*options.sbatch_arg, *words))


def sbatch_words(options: BatchOptions, *, name: str, np: int | None, grace: float) -> tuple[str, ...]:
    """Return the options for sbatch. ``name``: of a job that has none. ``np``: tasks, each one slot."""
    values = {
        "job-name": options.job_name or name,
        "partition": options.partition,
        "account": options.account,
        "nodes": options.nodes,
        "ntasks": np,
        "ntasks-per-node": options.ntasks_per_node,
        "gpus-per-node": options.gpus or None,
        "time": options.time,
        "open-mode": "append",  # a requeued job continues its log
        "signal": f"B:USR1@{notice_seconds(grace)}" if options.requeue else None,
    }
    words = [f"--{key}={value}" for key, value in values.items() if value is not None]
    return (*words, *(["--requeue"] if options.requeue else []), *options.sbatch_arg)


_REQUEUE = """
# Slurm sends USR1 {notice} seconds before the time limit: the job is asked to end, then requeued.
again= end=$(mktemp)
trap 'again=yes; kill -TERM $! 2>/dev/null' USR1
trap 'kill -TERM $! 2>/dev/null' TERM  # where Slurm tracks jobs by cgroup, only this shell gets it
RINGLEADER_OPT_RUN_JSON_FILE=$end RINGLEADER_OPT_SCALE_JSON_FILE=$end {command} &
job=$!
while kill -0 "$job" 2>/dev/null; do wait "$job"; done
wait "$job"
code=$?
if grep -qs '"whose": "host ' "$end"; then
    echo "ringleader: waiting until Slurm, too, notices the lost node and requeues the job" >&2
    sleep "$(scontrol show config | awk '$1 == "SlurmdTimeout" { print 2 * $3 + 60 }')" &
    wait "$!"
fi
rm -f "$end"
if [ -n "$again" ] && [ "$code" -ne 0 ]; then
    echo "ringleader: the time limit is near: job $SLURM_JOB_ID is requeued" >&2
    scontrol requeue "$SLURM_JOB_ID" || echo "ringleader: job $SLURM_JOB_ID could not be requeued" >&2
fi
exit "$code"
"""


def script_of(options: BatchOptions, command: Sequence[str], words: Sequence[str], *, grace: float) -> str:
    """Return the script. ``words``: see `sbatch_words`; they are also given to sbatch itself.

    ``command`` may have any characters; the ``#SBATCH`` lines end with the first line that is none.
    """
    lines = ["#!/bin/bash", *(f"#SBATCH {_escaped(word)}" for word in words)]
    quoted = shlex.join(command)
    if options.requeue:
        body = _REQUEUE.replace("{notice}", str(notice_seconds(grace))).replace("{command}", quoted)
    else:
        body = f"\nexec {quoted}\n"
    return "\n".join(lines) + "\n" + body


def _escaped(word: str) -> str:
    """Return a word as sbatch reads it in a script: where it needs quotes, in double ones."""
    if not re.search(r"""[\s"'\\#]""", word):
        return word
    return '"' + re.sub(r'["\\]', r"\\\g<0>", word) + '"'
