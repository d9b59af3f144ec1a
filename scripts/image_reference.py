"""Writes docs/reference/images.md from the keys of blocks and their docstrings.

python scripts/image_reference.py > docs/reference/images.md
"""

# ruff: noqa: E501 - lines of the page are as long as the page's

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field, is_dataclass
from typing import Any

from ringleader.images import mirrors, recipe
from ringleader.images.blocks import KINDS
from ringleader.images.recipe import Mirrors, Recipe, TextKind
from ringleader.images.recipe_parser import keys_of
from ringleader.kubernetes.mpijob.field_schema import descriptions

HEAD = """# Image recipes

A recipe is a TOML file: what is to be in an image, one table for each block. `ringleader image render FILE` makes a Dockerfile or an
Apptainer definition of it, `image check` says what does not fit together, `image build` builds it. The bundled recipes are shown by
`ringleader image list`. A guide: [From nothing to a training image](../guides/images.md); what fits what: [compatibility](image-compatibility.md).

    name = "digits"
    about = "PyTorch for the digits example"
    base = "ubuntu:24.04"

    [torch]
    version = "2.8.0"

    [mpi]

An unknown block, an unknown key, a value of another type or with a sign that its kind does not allow is a fault. All faults of a file are reported at
once, each with line and key, and nothing is written. `--set torch.version=2.9.1` changes a key (again for more), `--base REF` the base,
`--mirror cn` or `--mirror pip=https://…` where things are fetched from.

## What is added by itself

Recipes have the blocks `python`, `ringleader` and `account` with their defaults where they do not name them, and `sshd` where they name `mpi`.
[Images of 2017 to 2019](historical-images.md) have no recipe: they are kept as Dockerfiles.

## Order

A recipe's order does not matter: blocks take effect in the order of this page. Each has steps of a build stage, which does not reach
the image, and steps of the image itself. Packages of pip go into the virtual environment `/opt/venv` in the build stage, which is copied whole.
All Debian packages of a stage are one call of apt-get.

## What every image is

* The account that runs it is not root; no key and no password is in it. A variable with the name of a secret, and keys and credentials among the
  files that are copied, are refused: whoever can pull an image can read them.
* No recommended packages; apt's lists and packages, and pip's cache, are gone in the step that made them.
* It says what it is: OCI labels (`org.opencontainers.image.*`, `ringleader.recipe` with the recipe's SHA-256), `/usr/share/ringleader/image.json`,
  and a list of its packages (CycloneDX) in `/usr/share/doc/ringleader/sbom.cdx.json`.
* Steps need no BuildKit: no here-documents, no mounts. buildah 1.28 builds them.

Apptainer has no counterpart of USER, EXPOSE and WORKDIR: the definition says so in comments. The command is its runscript, the self-test its `%test`.

"""


def page() -> str:
    """Return the whole page."""
    parts = [HEAD, "## The recipe itself\n", f"{summary(Recipe)}\n", *table(Recipe), ""]
    parts += [
        "## Mirrors\n",
        f"{summary(Mirrors)}\n",
        *table(Mirrors),
        "",
        *sets(),
        "",
    ]
    for kind in KINDS:
        parts += [f"## {kind.table}\n", f"{summary(kind)}\n", *table(kind), ""]
    return "\n".join([*parts, *kinds_of_text()])


def summary(model: type[Any]) -> str:
    """Return a dataclass's docstring as one paragraph."""
    return " ".join(inspect.cleandoc(model.__doc__ or "").split()).replace("``", "`")


def table(model: type[Any]) -> Iterator[str]:
    """Yield the table of a dataclass's keys."""
    texts = {
        name: one
        for kind in reversed(model.__mro__)
        if is_dataclass(kind)
        for name, one in descriptions(kind).items()
    }
    yield "| key | value | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for key, field in keys_of(model).items():
        meaning = " ".join(texts.get(field.name, "").split()).replace("``", "`").replace("|", r"\|")
        yield f"| `{key}` | {value(field)} | {default(field)} | {meaning} |"


def value(field: Field[Any]) -> str:
    """Return what a key holds."""
    kind = str(field.type)
    if kind == "bool":
        return "true or false"
    if kind == "int":
        return f"{field.metadata['least']} to {field.metadata['most']}"
    one_of = field.metadata.get("one_of", ())
    what = ", ".join(f"`{one}`" for one in one_of) if one_of else named(field.metadata["kind"])
    if kind == "tuple[str, ...]":
        return f"list: {what}"
    if kind != "str":
        return f"table: {named(field.metadata['names'])} → {what}"
    return what


def named(kind: TextKind) -> str:
    """Return a kind of text as a link to its row below."""
    name = next(name for name, one in vars(recipe).items() if one is kind)
    return f"[{name.lower().replace('_', ' ')}](#kinds-of-text)"


def default(field: Field[Any]) -> str:
    """Return a key's default as a reader needs it."""
    if field.default is MISSING:
        return "*needed*"
    if isinstance(field.default, bool):
        return str(field.default).lower()
    if isinstance(field.default, tuple):
        return ", ".join(f"`{one}`" for one in field.default)
    return f"`{field.default}`" if field.default != "" else ""


def sets() -> Iterator[str]:
    """Yield the named sets of mirrors."""
    yield "A mirror of a registry takes Docker Hub's images by their full path (`library/debian:12`), those of other public registries below that registry's"
    yield "name; images of your own hosts are left alone. apt's sources point to the mirror during a step and are put back before it ends. A base without"
    yield "`ca-certificates` cannot check a certificate: give apt an http URL then; apt checks signatures either way."
    yield "No file of the image names a mirror, unless with `keep = true`; the history of its layers, which `docker history` shows, has the commands as they ran.\n"
    yield "| set | for | of | URL | source |"
    yield "| --- | --- | --- | --- | --- |"
    for row in mirrors.table():
        yield f"| `{row.set}` | {row.kind} | {row.of} | {row.url} | {row.source or 'unverified'} |"


def kinds_of_text() -> Iterator[str]:
    """Yield the kinds of text."""
    yield "## Kinds of text\n"
    yield "None holds a newline or another control character. A value comes out of the image byte for byte, whatever quotes and signs it has.\n"
    yield "| kind | is | such as | pattern |"
    yield "| --- | --- | --- | --- |"
    for name, one in vars(recipe).items():
        if isinstance(one, TextKind):
            pattern = one.regex.replace("|", r"\|")
            shown = f"`{pattern}`" if len(pattern) < 100 and "](" not in pattern else ""
            yield f"| {name.lower().replace('_', ' ')} | {one.what} | `{one.example}` | {shown} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(page())
