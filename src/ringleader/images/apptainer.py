"""An image as a definition for Apptainer (and Singularity), with the same steps in the same order. Pure.

All of a stage's %files come before its %post. So what is copied waits below ``WAITING`` until the step that
would copy it in a Dockerfile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ringleader.errors import RequestError
from ringleader.images.dockerfile import REFERENCE, heading, layer
from ringleader.images.instructions import (
    Command,
    Copy,
    Env,
    Expose,
    Image,
    Label,
    Run,
    Stage,
    User,
    Workdir,
    shell,
)

WAITING = "/.copied"
TEMPLATE = re.compile(r"\{\{\s*\w+\s*\}\}")


def text(image: Image) -> str:
    """Return the whole file; RequestError for ``{{ word }}`` in it: that is a variable of Apptainer's."""
    if not image.stages:
        return image.kept[1]
    lines = heading(image)
    for stage in image.stages:
        lines += ["", *_stage(stage)]
    whole = "".join(f"{line}\n" for line in (*lines, *_ending(image, image.stages[-1])))
    found = TEMPLATE.search(whole)
    if found:
        what = f"Apptainer would take {found[0]} for its own variable"
        raise RequestError(what, where=image.name, hint="write it without one of the blanks or braces")
    return whole


def _stage(stage: Stage) -> Iterator[str]:
    yield "Bootstrap: docker"
    yield f"From: {stage.base}"
    yield f"Stage: {stage.name}"
    yield from _without_counterpart(stage)
    copies = [step for step in stage.steps if isinstance(step, Copy)]
    for source in dict.fromkeys(copy.stage for copy in copies):
        yield ""
        yield f"%files from {source}" if source else "%files"
        for number, copy in enumerate(copies):
            if copy.stage == source:
                yield from (f'    "{path}" "{_place(copy, number, path)}"' for path in copy.sources)
    yield ""
    yield "%post"
    yield "    set -e"
    number = 0
    for step in stage.steps:
        if isinstance(step, Run):
            yield from _run(step)
        elif isinstance(step, Env):
            yield from (f"    export {name}={_quoted(value)}" for name, value in step.variables)
        elif isinstance(step, Copy):
            yield from _copied(step, number)
            number += 1
    if number:
        yield f"    rm -rf {WAITING}"


def _run(step: Run) -> Iterator[str]:
    if step.commands:
        yield from layer(step, comment="    # ", first="    ( ", further="     ")
        yield "    ) || exit 1"


def _is_direct(copy: Copy) -> bool:
    return bool(copy.stage) and copy.sources == (copy.target.rstrip("/"),)


def _place(copy: Copy, number: int, path: str) -> str:
    """Return where %files puts a source."""
    return path if _is_direct(copy) else f"{WAITING}/{number}/{path.rstrip('/').rpartition('/')[2]}"


def _copied(copy: Copy, number: int) -> Iterator[str]:
    """Yield what Docker's COPY does: a directory's content is copied, and only it gets the owner."""
    is_direct = _is_direct(copy)
    what = shell(copy.target if is_direct else f"{WAITING}/{number}")
    if copy.owner or not is_direct:
        yield ""
    if copy.owner:
        yield f"    chown -R {shell(copy.owner)} {what}"
    if is_direct:
        return
    target = shell(copy.target)
    directory = copy.target if copy.target.endswith("/") else copy.target.rpartition("/")[0] or "/"
    yield f"    mkdir -p {shell(directory)}"
    for path in copy.sources:
        source = shell(_place(copy, number, path))
        yield f"    if [ -d {source} ]; then"
        yield f"        mkdir -p {target}"
        yield f"        cp -a {source}/. {target}"
        yield "    else"
        yield f"        cp -a {source} {target}"
        yield "    fi"


def _ending(image: Image, stage: Stage) -> Iterator[str]:
    steps = stage.steps
    variables = [pair for step in steps if isinstance(step, Env) for pair in step.variables]
    if variables:
        yield from ("", "%environment")
        yield from (f"    export {name}={_quoted(value)}" for name, value in variables)
    labels = [pair for step in steps if isinstance(step, Label) for pair in step.labels]
    if labels:
        yield from ("", "%labels")
        yield from (f"    {name} {value}" for name, value in labels)
    yield from _runscript(stage)
    if image.test:
        yield from ("", "%test", f"    {shell(*image.test)}")


def _without_counterpart(stage: Stage) -> Iterator[str]:
    """Yield comments on what Apptainer has no word for."""
    for step in stage.steps:
        match step:
            case User():
                yield f"# Docker's USER {step.name}: Apptainer runs as whoever calls it."
            case Expose():
                yield f"# Docker's EXPOSE {step.port}: Apptainer shares the host's network."
            case Workdir():
                yield f"# Docker's WORKDIR {step.path}: apptainer run --pwd {shell(step.path)}"


def _runscript(stage: Stage) -> Iterator[str]:
    for step in stage.steps:
        if isinstance(step, Command):
            yield from ("", "%runscript", "    if [ $# -eq 0 ]; then", f"        set -- {shell(*step.argv)}")
            yield from ("    fi", '    exec "$@"')


def _quoted(value: str) -> str:
    """Return a value in double quotes for the shell; ``${NAME}`` stays a reference."""
    kept = REFERENCE.findall(value)
    escaped = [re.sub(r'(["\\$`])', r"\\\1", part) for part in REFERENCE.split(value)]
    return '"' + "".join(part + one for part, one in zip(escaped, [*kept, ""], strict=True)) + '"'
