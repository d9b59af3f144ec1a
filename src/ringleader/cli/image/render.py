"""``ringleader image render`` and ``lock``: a recipe as a build file; its Python packages with hashes."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ringleader.cli.image.recipe_options import (
    NO_CHECK,
    RecipeOptions,
    not_empty,
    opened,
    opened_image,
    recipe_argument,
    refuse_what_clashes,
)
from ringleader.cli.options.option_checks import unwritable, write_text
from ringleader.cli.output import JsonOptions, show
from ringleader.cli.terminal_progress import shown_while
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RefusedError, RequestError, refuse
from ringleader.images import apptainer, dockerfile, lock_file
from ringleader.images.build import Contents, look, put
from ringleader.images.builders import find
from ringleader.images.dockerfile import DEFINITION, DOCKERFILE, IGNORE, MARK
from ringleader.images.instructions import Image
from ringleader.images.processes import answer
from ringleader.option_fields import SECONDS, flag, group, option

PULL_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class LockOptions:
    """The options, as they were written."""

    recipe: str = recipe_argument()
    output: str | None = option(
        "Write to a file. [default: standard output]", "-o", "--output", metavar="FILE"
    )
    platform: str = option("Platform of the packages. [default: linux/amd64]", default="", metavar="OS/ARCH")
    timeout: float = option("Time limit for pip.", default=600, **SECONDS)
    pin_base: bool = flag("Also pull the base, and print the line that pins it in the recipe by its digest.")
    no_check: bool = flag(NO_CHECK)
    dry_run: bool = flag("Print pip's command, and stop.")
    changes: RecipeOptions = group(RecipeOptions)


@Command.of("lock", LockOptions)
def lock_command(options: LockOptions) -> None:
    """Lock all Python packages of a recipe, with versions and hashes.

    \b
      ringleader image lock my.toml --output requirements.lock
      ringleader image build my.toml --set packages.lock=requirements.lock

    pip resolves the packages for the recipe's Python and base over the network; it downloads wheels whose
    dependencies the index does not list. Nothing is installed. Without --mirror, pip uses its configured
    indexes; their addresses are not written to the file.
    """
    refuse(unwritable("--output", options.output))
    recipe = opened(options.recipe, options.changes)
    if not options.no_check:
        refuse_what_clashes(recipe)
    question = lock_file.question(recipe, platform=options.platform)
    directory = Path(recipe.where).parent if recipe.where else Path()
    if options.dry_run:
        here = {"python": sys.executable, "target": "EMPTY", "directory": str(directory)}
        for index in question.indexes:
            print(shlex.join(lock_file.argv(question, **here, index=index)))
        print(shlex.join(lock_file.argv(question, **here, found="FOUND" if question.indexes else "")))
        return
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if question.python != ours:
        what = f"the image has Python {question.python}, we run in {ours}"
        do = "pip takes conditions on Python's version in packages' metadata for ours"
        print(f"ringleader: {what}: {do}", file=sys.stderr)
    with shown_while("pip resolves the packages"):
        found = lock_file.ask(question, environ=os.environ, directory=directory, seconds=options.timeout)
    write_text(options.output or "-", lock_file.text(question, *found))
    if options.pin_base:
        print(f'base = "{pinned(recipe.base, os.environ)}"', file=sys.stderr)


def pinned(base: str, environ: Mapping[str, str]) -> str:
    """Return a base's reference with its current digest; RefusedError where none is known."""
    if "@" in base:
        return base
    builder = find(environ=environ)
    with shown_while(f"{builder.name} pulls {base}"):
        said = answer(builder.words("pull", base), environ=environ, seconds=PULL_SECONDS)
    if said.code != 0:
        raise RefusedError(f"{builder.name} cannot pull it: {said.words[-300:]}", where=base)
    digest = look(builder, base, environ=environ).digest
    if not digest:
        raise RefusedError(f"{builder.name} knows no digest of it", where=base)
    return f"{base}@{digest}"


def check(directory: Path, texts: Mapping[str, str], inside: Contents) -> None:
    """Raise RequestError for each file there that we have not made and would write over."""
    if not directory.exists():
        if not directory.absolute().parent.is_dir():
            what = f"there is no directory {directory.absolute().parent}"
            raise RequestError(what, where="-o", hint="make it, or name another")
        return
    if not directory.is_dir():
        raise RequestError(f"{directory} is not a directory", where="-o")
    places = {directory / path: source for path, source in inside.items()}
    foreign = [directory / name for name in texts if not _is_ours(directory / name)]
    if not any((directory / name).is_file() for name in texts):
        foreign += [path for path, source in places.items() if path.exists() and not _is(path, source)]
    foreign += [
        parent
        for path in places
        for parent in path.parents
        if parent.is_relative_to(directory) and parent.exists() and not parent.is_dir()
    ]
    hint = "name another directory, or move it away"
    refuse(Fault(where="-o", what=f"{path} is there already, and not ours", hint=hint) for path in foreign)


def _is_ours(path: Path) -> bool:
    if not path.exists() and not path.is_symlink():
        return True
    try:
        return path.is_file() and path.read_bytes().startswith(MARK.encode())
    except OSError:
        return False


def _is(path: Path, source: Path | None) -> bool:
    """Tell whether a file is the one that would be copied there: the recipe is in the same directory."""
    return source is not None and path.exists() and path.samefile(source)


def write(directory: Path, texts: Mapping[str, str], inside: Contents) -> tuple[str, ...]:
    """Write texts and contents, each file beside its place first; return the paths. ``check`` has passed."""
    try:
        parent = directory.absolute().parent
        with tempfile.TemporaryDirectory(prefix=".ringleader-image-", dir=parent) as name:
            made = Path(name)
            for file, text in texts.items():
                (made / file).write_text(text, encoding="utf-8")
                (made / file).chmod(0o644)
            for place, source in inside.items():
                if not _is(directory / place, source):
                    put(source, made / place)
            directory.mkdir(exist_ok=True)
            for path in sorted(made.rglob("*")):  # a directory comes before what is in it
                target = directory / path.relative_to(made)
                if path.is_dir():
                    target.mkdir(exist_ok=True)
                else:
                    path.replace(target)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise RefusedError(what, where=str(error.filename or directory)) from None
    return (*texts, *inside)


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    """The options, as they were written."""

    recipe: str = recipe_argument()
    changes: RecipeOptions = group(RecipeOptions)
    format: str = option("Format to print.", default="dockerfile", choices=["dockerfile", "apptainer"])
    output: str = option(
        "Write to DIR both formats, .dockerignore, and the files that they copy.",
        "-o",
        "--output",
        default="",
        read=not_empty,
        called="-o",
        metavar="DIR",
    )
    no_check: bool = flag(NO_CHECK)
    json: JsonOptions = group(JsonOptions)


@Command.of("render", RenderOptions)
def render_command(options: RenderOptions) -> None:
    """Print a recipe as a Dockerfile or as an Apptainer definition.

    The recipe is checked first (`ringleader image check`): definite problems are errors, possible
    ones are warnings. Nothing is downloaded. `docker build`, `podman build`, `buildah build` and `apptainer
    build` build what -o writes.
    """
    image, contents = opened_image(options.recipe, options.changes, checked=not options.no_check)
    if options.output:
        _write(image, contents, options)
        return
    text = apptainer.text(image) if options.format == "apptainer" else dockerfile.text(image)
    values = {"name": image.name, "format": options.format, "text": text, "context": list(image.context)}
    show(options.json, values, lambda: text)


def _write(image: Image, contents: Callable[[], Contents], options: RenderOptions) -> None:
    texts = {
        DOCKERFILE: dockerfile.text(image),
        DEFINITION: apptainer.text(image),
        IGNORE: dockerfile.ignore_text(image),
    }
    inside, output = contents(), Path(options.output)
    check(output, texts, inside)
    written = write(output, texts, inside)
    values = {"name": image.name, "directory": str(output), "files": list(written)}
    show(options.json, values, lambda: "")
    if not options.json.json:
        print(f"image: {output} holds {', '.join(written)}", file=sys.stderr)
