"""The directory that a builder gets: the Dockerfile, our own wheel, and the files that the recipe names."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ringleader.agents import temporary_directory
from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.images import ringleader_wheel
from ringleader.images.build_command import CONTEXT, DOCKERFILE
from ringleader.images.instructions import Image
from ringleader.images.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Content:
    """One thing in a context."""

    path: str
    """Below the context."""
    source: Path | None
    """What is copied there; ``None``: we write it."""


def contents(image: Image, recipe: Recipe) -> tuple[Content, ...]:
    """Return what an image's context holds besides the Dockerfile, in the order of the image.

    Raises RequestError with every file that is missing.
    """
    given = getattr(recipe.blocks.get("ringleader"), "wheel", "")
    directory = Path(recipe.where).parent if recipe.where else Path()
    found, faults = [], []
    for path in image.context:
        if not given and PurePosixPath(path).name == ringleader_wheel.name():
            found.append(Content(path=path, source=None))
            continue
        source = directory / path
        if not source.exists():
            hint = "paths in a recipe are relative to its directory"
            faults.append(Fault(where=recipe.where or recipe.name, what=f"there is no {source}", hint=hint))
        elif not os.access(source, os.R_OK):
            faults.append(Fault(where=recipe.where or recipe.name, what=f"{source} cannot be read"))
        found.append(Content(path=path, source=source))
    if faults:
        raise RequestError(faults)
    return tuple(found)


@contextmanager
def made(dockerfile: str, inside: tuple[Content, ...]) -> Iterator[Path]:
    """Make a directory with the Dockerfile and, beside it, the context; yield its path.

    Only we can read it, and it is removed in the end, come what may. The Dockerfile is no part of the
    context: a recipe may copy a file of that name. Raises RefusedError where something cannot be copied.
    """
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(temporary_directory.directory("image"))
        except OSError as error:
            raise _refused("there is no place for the context", error) from None
        try:
            (directory / DOCKERFILE).write_text(dockerfile, encoding="utf-8")
            (directory / CONTEXT).mkdir()
            for content in inside:
                put(content, directory / CONTEXT)
        except OSError as error:
            raise _refused("the context cannot be made", error) from None
        yield directory


def _refused(what: str, error: OSError) -> RefusedError:
    hint = "TMPDIR names another place for temporary files"
    return RefusedError(Fault(where=tempfile.gettempdir(), what=f"{what}: {error}", hint=hint))


def put(content: Content, directory: Path) -> None:
    """Copy one thing to its place below a directory, or make it there."""
    target = directory / content.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if content.source is None:
        ringleader_wheel.write(target.parent)
    elif content.source.is_dir():
        shutil.copytree(content.source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(content.source, target)
