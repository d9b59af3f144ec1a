"""What a command line says of ranks in other words than a ``Job``, and how both become the job to be run.

Touches nothing: files are handed in. `host_options` says where a job runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ringleader.cli.options.host_options import Chosen
from ringleader.cli.options.option_checks import Faults, ReadText
from ringleader.errors import Fault, collected
from ringleader.option_fields import WrongValueError, flag, many, option, parts
from ringleader.plan.containers import is_file
from ringleader.plan.elastic_options import COOLDOWN, ElasticOptions
from ringleader.plan.job import Job
from ringleader.render.rank_environment import RESERVED
from ringleader.value_class import dataclass

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$", "`": "`"}


@dataclass(frozen=True, kw_only=True)
class Variables:
    """What was read, in order, and everything that is wrong with it."""

    values: tuple[tuple[str, str], ...] = ()
    faults: tuple[Fault, ...] = ()


def parse_assignments(words: Iterable[str], environ: Mapping[str, str]) -> Variables:
    """Read the values of ``-x``: ``NAME=VALUE`` as it is, ``NAME`` with the caller's value."""

    def read(word: str) -> tuple[str, str]:
        name, equals, value = word.partition("=")
        _check_name(name)
        return name, value if equals else _callers(name, environ)

    return _read_each(((f"-x {word.partition('=')[0][:80]}", word) for word in words), read)


def parse_env_file(text: str, environ: Mapping[str, str], where: str) -> Variables:
    """Read a file of ``NAME=VALUE`` lines; ``where`` is its name.

    ``NAME`` alone takes the caller's value, ``export`` in front is passed over, ``#`` at the start of a line
    or after a space begins a comment. A value in single quotes is literal; in double quotes ``\\n``, ``\\t``,
    ``\\"``, ``\\\\`` and ``\\$`` are escapes. Nothing is expanded: ``$HOME`` stays ``$HOME``.
    """

    def read(content: str) -> tuple[str, str]:
        name, equals, rest = content.partition("=")
        name = name if equals else _without_comment(content)
        _check_name(name)
        return name, _value(rest.strip()) if equals else _callers(name, environ)

    lines = (
        line.strip().removeprefix("export ").lstrip() for line in text.removeprefix("\ufeff").split("\n")
    )
    numbered = ((f"{where}:{number}", line) for number, line in enumerate(lines, start=1))
    return _read_each(((place, line) for place, line in numbered if line and line[0] != "#"), read)


def _read_each(lines: Iterable[tuple[str, str]], read: Callable[[str], tuple[str, str]]) -> Variables:
    """Read texts, each with its place."""
    values: list[tuple[str, str]] = []
    faults: list[Fault] = []
    for place, text in lines:
        try:
            values.append(read(text))
        except WrongValueError as wrong:
            faults.append(wrong.fault(place))
    return Variables(values=tuple(values), faults=tuple(faults))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise WrongValueError(
            f"{name[:80]!r} is not a name of a variable", "write NAME=VALUE, or NAME to pass yours on"
        )
    if name in RESERVED:
        raise WrongValueError(f"{name} follows from a rank's place and cannot be set", "leave it out")


def _callers(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise WrongValueError(f"{name} is not set here", f"set it, or write {name}=VALUE")
    return environ[name]


def _value(text: str) -> str:
    """Read what stands after ``=``."""
    if "\0" in text:
        raise WrongValueError("a NUL byte, which no variable can hold")
    quote = text[:1]
    if quote not in ("'", '"'):
        return _without_comment(text)
    value: list[str] = []
    letters = iter(enumerate(text[1:], start=1))
    for index, letter in letters:
        if letter == quote:
            if _without_comment(text[index + 1 :]):
                raise WrongValueError(
                    f"{text[index + 1 :]!r} follows the closing quote", "quote the whole value"
                )
            return "".join(value)
        if letter == "\\" and quote == '"':
            _, escaped = next(letters, (0, ""))
            value.append(_ESCAPES.get(escaped, "\\" + escaped))
        else:
            value.append(letter)
    raise WrongValueError(f"the quote {quote} is not closed on this line")


def _without_comment(text: str) -> str:
    return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()


@dataclass(frozen=True, kw_only=True)
class RankOptions:
    """What becomes variables of the ranks, and the opposite of ``--own-gpu``."""

    asked_for_all_gpus: bool = flag(
        "Show each rank all GPUs of its host (default); scripts select the one of their local rank.",
        "--all-gpus",
        after="share_gpus",
        of="scale",
    )
    x: tuple[str, ...] = many(
        "Set an environment variable on every rank, or pass through the current value. Can be repeated.",
        "-x",
        metavar="NAME[=VALUE]",
        after="master_port threads",
        of="scale bench cluster",
    )
    env_file: tuple[str, ...] = many(
        "Set variables from a file: NAME[=VALUE] per line.",
        metavar="FILE",
        after="x",
        of="scale bench cluster",
    )
    timeline: str | None = option(
        "Write a Chrome trace of rank 0's operations. Include {rank} in the name to write one file per "
        "rank. Use DYNAMIC as FILE to let the script start and stop recording.",
        metavar="FILE",
        after="no_settings",
    )
    autotune: bool = flag(
        "Try bucket sizes during the first training steps, then use the best and report it.",
        after="timeline env_file",
        of="cluster",
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
    if ranks.asked_for_all_gpus and not asked.all_gpus:
        faults.add("--own-gpu", "contradicts --all-gpus", "leave one out; all GPUs are seen by default")
    require = asked.require
    if require:
        from ringleader.fabric.transport_proof.requirement import parse_requirement  # few need it

        with collected(faults.found):
            require = parse_requirement(require).words
    image, engine = asked.container, asked.container_engine
    return replace(
        asked,
        np=np,
        hosts=chosen.hosts,
        ssh=chosen.ssh,
        env=tuple(variables.items()),
        require=require,
        container=_absolute(current_dir, image) if image and is_file(image, engine) else image,
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


_ELASTIC = frozenset(("min_np", "max_np", "discovery_script", "min_hosts", "max_hosts"))
"""Fields of ElasticOptions that make a job elastic."""


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
    if not given.keys() & _ELASTIC:
        spellings = {part.name: part.spelling for part in parts(ElasticOptions)}
        if any(spellings[name] == fault.where for name in _ELASTIC for fault in faults.found):
            return None  # it was to be elastic, but for a wrong word
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
