"""An image as a Dockerfile that BuildKit, buildah and podman build: no here-documents, no mounts. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ringleader.images.instructions import (
    Command,
    Copy,
    Entrypoint,
    Env,
    Expose,
    Image,
    Label,
    Run,
    Stage,
    Step,
    User,
    Workdir,
)
from ringleader.images.rendered_files import heading
from ringleader.images.shell_lines import layer

ESCAPED = str.maketrans({'"': r"\"", "\\": r'"\\"', "$": r'"\$"'})
REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def text(image: Image) -> str:
    """Return the whole file."""
    lines = heading(image)
    for stage in image.stages:
        lines += ["", *_stage(stage, stage is image.stages[-1])]
    return "".join(f"{line}\n" for line in lines)


def _stage(stage: Stage, last: bool) -> Iterator[str]:
    yield f"FROM {stage.base}" if last else f"FROM {stage.base} AS {stage.name}"
    for step in stage.steps:
        yield from _lines(step)


def _lines(step: Step) -> Iterator[str]:
    match step:
        case Run():
            yield from layer(step, comment="# ", first="RUN ", further=" ")
        case Env():
            yield from _env(step)
        case Label():
            yield from _assignments("LABEL", [f"{name}={quoted(value)}" for name, value in step.labels])
        case Copy():
            yield _copy(step)
        case User():
            yield f"USER {step.name}"
        case Workdir():
            yield f"WORKDIR {_path(step.path)}"
        case Expose():
            yield f"EXPOSE {step.port}"
        case Entrypoint():
            yield f"ENTRYPOINT {_json(step.argv)}"
        case Command():
            yield f"CMD {_json(step.argv)}"


def _env(step: Env) -> Iterator[str]:
    """Yield ENV instructions: a value sees only variables of instructions before its own."""
    group: list[str] = []
    names: set[str] = set()
    for name, value in step.variables:
        if any(f"${{{one}}}" in value for one in names):
            yield from _assignments("ENV", group)
            group, names = [], set()
        group.append(f"{name}={quoted(value, references=True)}")
        names.add(name)
    yield from _assignments("ENV", group)


def _assignments(instruction: str, parts: list[str]) -> Iterator[str]:
    indent = " " * (len(instruction) + 1)
    for number, part in enumerate(parts):
        head = indent if number else f"{instruction} "
        yield f"{head}{part} \\" if number < len(parts) - 1 else f"{head}{part}"


def quoted(value: str, *, references: bool = False) -> str:
    """Return a value in quotes as ENV and LABEL take it, ``${NAME}`` as it is where references count.

    Builders agree on a backslash outside quotes, and not on one inside them.
    """
    kept = REFERENCE.findall(value) if references else []
    literal = REFERENCE.split(value) if references else [value]
    escaped = [part.translate(ESCAPED) for part in literal]
    return '"' + "".join(part + one for part, one in zip(escaped, [*kept, ""], strict=True)) + '"'


def _copy(step: Copy) -> str:
    flags = [
        f"--{name}={value}"
        for name, value in (("from", step.stage), ("chown", step.owner), ("chmod", step.mode))
        if value
    ]
    paths = [*step.sources, step.target]
    if any(" " in path for path in paths):
        return " ".join(["COPY", *flags, _json(tuple(_path(path) for path in paths))])
    return " ".join(["COPY", *flags, *(_path(path) for path in paths)])


def _path(path: str) -> str:
    """Return a path; ValueError for one that Docker would read differently (recipes cannot have such)."""
    if not path or re.search(r"[\x00-\x1f\x7f\"'\\$*?\[\]`<>]", path):
        raise ValueError(f"not a path for a Dockerfile: {path!r}")
    return path


def _json(argv: tuple[str, ...]) -> str:
    return json.dumps(list(argv), ensure_ascii=False)
