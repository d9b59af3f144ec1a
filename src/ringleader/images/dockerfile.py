"""An image as a Dockerfile that BuildKit, buildah and podman build: no here-documents, no mounts. Pure.

Also what ``apptainer`` shares: the heading of rendered files, and commands laid out as lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from ringleader.images.instructions import (
    Command,
    Copy,
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

MARK = "# Made by `ringleader image render`"
"""How each of our texts begins; only such files are written over."""
DOCKERFILE, DEFINITION, IGNORE = "Dockerfile", "image.def", ".dockerignore"


def heading(image: Image) -> list[str]:
    """Return the comment that a rendered file begins with."""
    made = f"{MARK} from the recipe {image.name}: change that, not this file."
    return [made, f"# {image.about}"] if image.about else [made]


def ignore_text(image: Image) -> str:
    """Return a .dockerignore that keeps everything away from the builder but what the image copies.

    A directory lets in what is below it; its parents must be let in too, and nothing beside it.
    """
    lines = [f"{MARK}: only what the image copies is sent to the builder.", "*"]
    for path in image.context:
        parts = path.strip("/").split("/")
        for end in range(1, len(parts)):
            parent = "/".join(parts[:end])
            lines += [f"!{parent}", f"{parent}/*"]
        lines.append(f"!{'/'.join(parts)}")
    return "".join(f"{line}\n" for line in dict.fromkeys(lines))


ESCAPED = str.maketrans({'"': r"\"", "\\": r'"\\"', "$": r'"\$"'})
REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def text(image: Image) -> str:
    """Return the whole file."""
    if not image.stages:
        return image.kept[0]
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
    flags = [f"--{name}={value}" for name, value in (("from", step.stage), ("chown", step.owner)) if value]
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


# --- commands of a step as a chain that stops at the first failure, laid out to be read --------------------

WIDTH = 100
"""Columns after which a command continues in a further line."""
INDENT = "        "
SEPARATORS = (";", "&", "||")
LINES = "printf '%s\\n'"
"""How a command begins that writes lines to a file (``instructions.write``)."""


def layer(step: Run, *, comment: str, first: str, further: str) -> Iterator[str]:
    """Yield a step's lines after an empty one, each begun as its place wants it; none without commands."""
    if not step.commands:
        return
    yield ""
    if step.why:
        yield f"{comment}{step.why}"
    head, *rest = chain(step.commands)
    yield f"{first}{head}"
    yield from (f"{further}{line}" for line in rest)


def chain(commands: Iterable[str]) -> tuple[str, ...]:
    """Return ``first && second && …`` as lines; every line but the last ends with a backslash.

    A command that is a list itself (``a; b``, ``a || b``) is put in braces, so that it counts as one.
    ValueError for a newline in a command.
    """
    lines: list[str] = []
    for command in commands:
        if "\n" in command or "\r" in command or not command.strip():
            raise ValueError(f"a command must be one line: {command!r}")
        first, *further = _wrapped(_grouped(command))
        lines += [f"&& {first}" if lines else first, *(f"{INDENT}{line}" for line in further)]
    return tuple(f"{line} \\" for line in lines[:-1]) + tuple(lines[-1:])


def _grouped(command: str) -> str:
    top = [word for word, depth in _words(command) if depth == 0]
    if any(word in SEPARATORS or (word.endswith((";", "&")) and not word.endswith("&&")) for word in top):
        return f"{{ {command.rstrip(' ;')}; }}"
    return command


def _wrapped(command: str) -> Iterator[str]:
    """Yield a command in lines of about ``WIDTH``, broken at blanks outside quotes.

    The lines of a file that is written are separate lines.
    """
    line, quoted_only = "", command.startswith(LINES)
    for word, _ in _words(command):
        full = quoted_only or len(line) + len(word) >= WIDTH
        # A line that begins with # would be a comment of the Dockerfile; with % a section of a definition.
        if line not in ("", "printf") and full and word[0] not in "#%" and not line.endswith(">"):
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def _words(command: str) -> Iterator[tuple[str, int]]:
    """Yield the words between blanks outside quotes, and how many ``(`` and ``{`` are open before each."""
    word, quote, depth, before, escaped = "", "", 0, 0, False
    for sign in command:
        if escaped:
            escaped = False
        elif quote:
            escaped = sign == "\\" and quote == '"'
            quote = "" if sign == quote else quote
        elif sign == "\\":
            escaped = True
        elif sign in "'\"":
            quote = sign
        elif sign == " ":
            if word:
                yield word, before
            word, before = "", depth
            continue
        elif sign in "({":
            depth += 1
        elif sign in ")}":
            depth -= 1
        word += sign
    yield word, before
