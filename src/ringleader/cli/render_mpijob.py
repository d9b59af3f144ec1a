"""``ringleader render mpijob``: MPIJobs, printed and not sent."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ringleader.cli.extras import needs_kubernetes
from ringleader.errors import Fault, RequestError

if TYPE_CHECKING:
    from ringleader.mpijob.manifests import Rendered


@click.command(name="mpijob", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, metavar="FILE…", required=True)
@click.option(
    "--convert", is_flag=True, help="Read manifests of v1alpha1, v1alpha2 and v1 too; list changes."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the object, or a List of several.")
def command(files: tuple[str, ...], convert: bool, as_json: bool) -> None:
    """Print MPIJobs with every default spelt out.

    FILE is YAML or JSON of any number of objects; - is standard input. Every fault in every file is listed,
    with file, line and field; the exit code is 2 then. What a server added (uid, status and the like) is left
    out. Objects of other kinds pass unchanged.
    """
    with needs_kubernetes():
        from ringleader.mpijob import manifests, yaml_text
    documents: list[yaml_text.Document] = []
    faults: list[Fault] = []
    for file in files:
        try:
            documents += yaml_text.documents(text_of_file(file), "standard input" if file == "-" else file)
        except RequestError as error:
            faults += error.faults
    rendered: tuple[Rendered, ...] = ()
    try:
        if documents or not faults:
            rendered = manifests.render(documents, converting=convert)
    except RequestError as error:
        faults += error.faults
    if faults:
        raise RequestError(faults)
    if convert:
        sys.stderr.write(_changes(rendered))
    values = [one.value for one in rendered]
    sys.stdout.write(_json(values) if as_json else yaml_text.text_of(values))


def text_of_file(file: str) -> str:
    """Return a file's text; RequestError where there is none."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise RequestError(Fault(where=file, what=f"cannot be read: {error.strerror or error}")) from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RequestError(Fault(where=f"{file}:{line}", what="is not UTF-8")) from None


def _json(values: Sequence[object]) -> str:
    one = values[0] if len(values) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(values)}
    return json.dumps(one, indent=2, ensure_ascii=False) + "\n"


def _changes(rendered: Sequence[Rendered]) -> str:
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
