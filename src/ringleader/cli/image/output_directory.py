"""A rendered image's directory on disk: what a builder needs, written as a whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.images.build_context import Content, put
from ringleader.images.rendered_files import MARK


def check(directory: Path, texts: Mapping[str, str], inside: Sequence[Content]) -> None:
    """Raise RequestError for each file there that we have not made and would write over."""
    if not directory.exists():
        if not directory.absolute().parent.is_dir():
            what = f"there is no directory {directory.absolute().parent}"
            raise RequestError(Fault(where="-o", what=what, hint="make it, or name another"))
        return
    if not directory.is_dir():
        raise RequestError(Fault(where="-o", what=f"{directory} is not a directory"))
    foreign = [directory / name for name in texts if not _is_ours(directory / name)]
    if not any((directory / name).is_file() for name in texts):
        foreign += [directory / one.path for one in inside if _is_other(directory / one.path, one)]
    foreign += [
        parent
        for one in inside
        for parent in (directory / one.path).parents
        if parent.is_relative_to(directory) and parent.exists() and not parent.is_dir()
    ]
    if foreign:
        hint = "name another directory, or move it away"
        raise RequestError(
            Fault(where="-o", what=f"{path} is there already, and not ours", hint=hint) for path in foreign
        )


def write(directory: Path, texts: Mapping[str, str], inside: Sequence[Content]) -> tuple[str, ...]:
    """Write texts and contents, each file beside its place first; return the paths. ``check`` has passed."""
    try:
        parent = directory.absolute().parent
        with tempfile.TemporaryDirectory(prefix=".ringleader-image-", dir=parent) as made:
            _fill(Path(made), directory, texts, inside)
            directory.mkdir(exist_ok=True)
            for path in sorted(Path(made).rglob("*")):  # a directory comes before what is in it
                target = directory / path.relative_to(made)
                if path.is_dir():
                    target.mkdir(exist_ok=True)
                else:
                    path.replace(target)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise RefusedError(Fault(where=str(error.filename or directory), what=what)) from None
    return (*texts, *(one.path for one in inside))


def _fill(made: Path, directory: Path, texts: Mapping[str, str], inside: Sequence[Content]) -> None:
    for name, text in texts.items():
        (made / name).write_text(text, encoding="utf-8")
        (made / name).chmod(0o644)
    for content in inside:
        if content.source is not None and _is_there(directory / content.path, content.source):
            continue
        put(content, made)


def _is_ours(path: Path) -> bool:
    if not path.exists() and not path.is_symlink():
        return True
    try:
        return path.is_file() and path.read_bytes().startswith(MARK.encode())
    except OSError:
        return False


def _is_there(path: Path, source: Path) -> bool:
    """Tell whether a file is where it would be copied to: the recipe is in the same directory."""
    return path.exists() and path.samefile(source)


def _is_other(path: Path, content: Content) -> bool:
    """Tell whether something else than what we would copy there is there."""
    return path.exists() and (content.source is None or not _is_there(path, content.source))
