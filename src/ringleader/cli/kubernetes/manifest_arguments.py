"""Files of manifests: read with every fault in all of them, and what a conversion changed."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ringleader.cli.kubernetes.connection import needs_kubernetes
from ringleader.cli.typed_command import Command, Options
from ringleader.errors import Fault, RequestError, collected
from ringleader.text_files import decoded, read_bytes

if TYPE_CHECKING:
    from ringleader.kubernetes.mpijob.manifest_files import Rendered


class FilesOrCommand(Command[Options]):
    """A command of FILEs, or with ``--image`` of a COMMAND."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let options stand behind files too; behind a COMMAND they are its own."""
        ctx.allow_interspersed_args = not any(word.partition("=")[0] == "--image" for word in args)
        return super().parse_args(ctx, args)


@contextmanager
def located(faults: list[Fault], where: str) -> Iterator[None]:
    """Add the faults of a document to others, each with the place of the document."""
    mine: list[Fault] = []
    with collected(mine):
        yield
    faults += (replace(one, where=f"{where} {one.where}") for one in mine)


def read_files(
    files: Sequence[str], faults: list[Fault], *, converting: bool, kinds: Collection[str] = ("MPIJob",)
) -> tuple[Rendered, ...]:
    """Return the objects of files, read as these ``kinds``; all that is wrong is added to ``faults``."""
    with needs_kubernetes():
        from ringleader.kubernetes.mpijob import manifest_files, yaml_text
    if not files:
        hint = f"a file of {'s or '.join(kinds)}s, - for standard input, or --image IMAGE … -- COMMAND"
        faults.append(Fault(where="FILE", what="missing", hint=hint))
        return ()
    documents: list[yaml_text.Document] = []
    before = len(faults)
    for file in files:
        with collected(faults):
            documents += yaml_text.documents(text_of_file(file), "standard input" if file == "-" else file)
    with collected(faults):
        if documents or len(faults) == before:
            return manifest_files.render(
                documents, converting=converting, source=", ".join(files), kinds=kinds
            )
    return ()


def text_of_file(file: str) -> str:
    """Return a file's text; RequestError where there is none."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else read_bytes(file)
        return decoded(data)
    except OSError as error:
        raise RequestError(f"cannot be read: {error.strerror or error}", where=file or "FILE ''") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RequestError("is not UTF-8", where=f"{file}:{line}") from None


def changes_text(rendered: Sequence[Rendered]) -> str:
    """Return the list of changes, job by job, what is lost last."""
    lines = []
    for one in rendered:
        if not one.name:
            continue
        if not one.changes:
            lines.append(f"{one.where} {one.name}: is v2beta1 already, nothing changed")
            continue
        lines.append(f"{one.where} {one.name}:")
        ordered = sorted(one.changes, key=lambda change: change.is_lost)
        lines += [f"  {change}" for change in ordered]
    return "".join(f"{line}\n" for line in lines)


def yaml_of(values: Sequence[object]) -> str:
    """Return objects as YAML documents."""
    with needs_kubernetes():
        from ringleader.kubernetes.mpijob.yaml_text import text_of
    return text_of(values)
