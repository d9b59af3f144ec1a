"""``ringleader image build``: a recipe becomes an image in the storage of buildah, podman or docker."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ringleader import text_files
from ringleader.cli.image.build_display import Shown
from ringleader.cli.image.recipe_options import opened, recipe_options, refuse_what_clashes
from ringleader.cli.number_types import FiniteRange
from ringleader.errors import Fault, RefusedError, RequestError

if TYPE_CHECKING:
    from ringleader.images.build import Built, Task

HELP = """Build an image of a recipe with buildah, podman or docker: the first of them that answers.

\b
  ringleader image build pytorch-cpu --tag example.org/team/train:1
  ringleader image build my.toml --test --sbom sbom.json
  ringleader image build my.toml --dry-run

The registry's credentials are the builder's own (buildah login, podman login, docker login).
"""


class BuildCommand(click.Command):
    """A command whose words arrive as one mapping."""

    def invoke(self, ctx: click.Context) -> int:
        """Build; return the exit code."""
        return build(ctx.params)


PLATFORMS = ("linux/amd64", "linux/arm64")

_OPTIONS: tuple[click.Parameter, ...] = (
    click.Argument(["recipe"], metavar="PROFILE|FILE"),
    click.Option(["--tag"], default="", metavar="NAME:TAG", help="[default: the recipe's name, latest]"),
    click.Option(["--builder"], type=click.Choice(["buildah", "podman", "docker"]), help="Use this one."),
    click.Option(["--platform"], default="", metavar="OS/ARCH", help="[default: the builder's own]"),
    click.Option(
        ["--isolation"],
        type=click.Choice(["oci", "rootless", "chroot"]),
        help="How buildah and podman isolate steps. [default: what works here]",
    ),
    click.Option(
        ["--storage-driver"], default="", metavar="NAME", help="Of buildah and podman: overlay, vfs."
    ),
    click.Option(
        ["--builder-arg"],
        multiple=True,
        metavar="WORD",
        help="A further word for the builder. Again for more.",
    ),
    click.Option(
        ["--pull"],
        type=click.Choice(["missing", "always", "never"]),
        default="missing",
        show_default=True,
        help="When base images are fetched.",
    ),
    click.Option(["--no-cache"], is_flag=True, help="Use no layer of an earlier build."),
    click.Option(
        ["--timestamp"],
        type=click.IntRange(min=0),
        metavar="SECONDS",
        help="Date of everything in the image, since 1970, so that the same recipe gives the same image. "
        "[default: SOURCE_DATE_EPOCH, else the time of the build]",
    ),
    click.Option(["--no-check"], is_flag=True, help="Do not check first whether everything fits together."),
    click.Option(["--test"], is_flag=True, help="Run the self-test in the image; it must pass."),
    click.Option(
        ["--sbom"],
        metavar="FILE",
        help="Write the list of the image's packages, CycloneDX JSON; - prints it.",
    ),
    click.Option(
        ["--timeout"],
        type=FiniteRange(min=0, min_open=True),
        default=21600,
        show_default=True,
        metavar="SECONDS",
        help="What the builder may take.",
    ),
    click.Option(["--dry-run"], is_flag=True, help="Print context, Dockerfile and the builder's command."),
    click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
)

command = recipe_options(
    BuildCommand(
        "build",
        params=list(_OPTIONS),
        help=HELP,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
)


def build(words: dict[str, Any]) -> int:
    """Do what was asked for and return the exit code."""
    if words["sbom"] == "-" and words["as_json"]:
        raise RequestError(Fault(where="--sbom -", what="with --json both would be standard output"))
    task = requested(words)
    if words["dry_run"]:
        print(json.dumps(rehearsal(task), indent=2) if words["as_json"] else rehearsal_text(task))
        return 0
    from ringleader.images.build import build as build_image
    from ringleader.images.build_selftest import faults_of

    shown = Shown(stream=sys.stderr, is_tty=sys.stderr.isatty())
    try:
        built = build_image(task, environ=os.environ, watcher=shown)
    finally:
        shown.finish()
    if built.sbom:
        write_text(words["sbom"], built.sbom)
    if words["sbom"] != "-":
        print(json.dumps(document(task, built), indent=2) if words["as_json"] else table(task, built))
    if built.test is not None:
        report_test(built.test)
        faults = faults_of(built.test)
        if faults:
            raise RefusedError(faults)
    return 0


def requested(words: dict[str, Any]) -> Task:
    """Return the build that was asked for, all that can be known before it begins checked."""
    from ringleader.images import dockerfile, image_assembly
    from ringleader.images.build import Task, surroundings
    from ringleader.images.build_command import Wish, isolation, tag_of
    from ringleader.images.build_context import contents
    from ringleader.images.builders import find

    recipe = opened(words["recipe"], words["settings"], words["mirrors"], words["base"])
    image = image_assembly.image(recipe)
    faults = _not_words(words)
    if words["test"] and not image.test:
        what = "the recipe has no block ringleader, so nothing in the image can test it"
        faults.append(Fault(where="--test", what=what, hint="add [ringleader] to the recipe"))
    if words["sbom"] and image.test[1:2] != ("doctor",):
        what = "Ringleader is not in the image, which would write the list"
        faults.append(Fault(where="--sbom", what=what, hint="add [ringleader] to the recipe"))
    if faults:
        raise RequestError(faults)
    if not words["no_check"]:
        refuse_what_clashes(recipe)
    inside = contents(image, recipe)
    builder = find(words["builder"] or "", environ=os.environ, storage_driver=words["storage_driver"])
    task = Task(
        recipe=recipe,
        image=image,
        dockerfile=dockerfile.text(image),
        inside=inside,
        wish=Wish(
            tag=tag_of(words["tag"], recipe.name),
            platform=words["platform"],
            isolation=words["isolation"] or "",
            pull=words["pull"],
            no_cache=words["no_cache"],
            timestamp=_timestamp(words["timestamp"]),
            arguments=tuple(words["builder_arg"]),
        ),
        builder=builder,
        isolation=isolation(words["isolation"] or "", builder, surroundings(os.environ)),
        test=words["test"],
        sbom=bool(words["sbom"]),
        seconds=words["timeout"],
    )
    task.argv()  # what the builder cannot do is said now
    return task


def _not_words(words: dict[str, Any]) -> list[Fault]:
    """Return the options whose text is not of the kind that a builder takes."""
    from ringleader.images.recipe_fields import REFERENCE

    found = []
    tag = words["tag"]
    if tag and ("@" in tag or REFERENCE.pattern.fullmatch(tag) is None):
        hint = "lower-case letters, such as example.org/team/train:1"
        found.append(Fault(where="--tag", what=f"{tag!r} is no NAME:TAG", hint=hint))
    if words["platform"] not in ("", *PLATFORMS):
        hint = f"use {' or '.join(PLATFORMS)}"
        found.append(Fault(where="--platform", what=f"{words['platform']!r} is unknown", hint=hint))
    driver = words["storage_driver"]
    if driver and re.fullmatch(r"[a-z0-9]+", driver) is None:
        hint = "such as overlay or vfs"
        found.append(Fault(where="--storage-driver", what=f"{driver!r} is no name", hint=hint))
    return [*found, *unwritable("--sbom", words["sbom"])]


def unwritable(option: str, path: str | None) -> list[Fault]:
    """Return why a file cannot be written, as far as that can be seen before the work begins."""
    if path in (None, "-"):
        return []
    file = Path(path or "")
    if not path or file.is_dir():
        return [Fault(where=option, what=f"{path!r} is no file")]
    if not file.parent.is_dir():
        return [Fault(where=option, what=f"there is no directory {file.parent}")]
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        return [Fault(where=option, what=f"{path} cannot be written")]
    return []


def _timestamp(given: int | None) -> int | None:
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return given if given is not None else int(epoch) if epoch.isdecimal() else None


def rehearsal(task: Task) -> dict[str, Any]:
    """Return what would be done, as plain values."""
    return {
        "builder": {"name": task.builder.name, "version": task.builder.version},
        "isolation": {"value": task.isolation.value, "reason": task.isolation.reason},
        "context": [
            {"path": one.path, "from": str(one.source) if one.source else None} for one in task.inside
        ],
        "dockerfile": task.dockerfile,
        "argv": list(task.argv()),
    }


def rehearsal_text(task: Task) -> str:
    """Return what would be done, as a text: a shell script in which the Dockerfile is a comment."""
    lines = ["# BUILD, a temporary directory of mode 0700:", "#   Dockerfile", "#   context/"]
    for one in task.inside:
        lines.append(
            f"#   {one.path}  ({f'from {one.source}' if one.source else 'made of this installation'})"
        )
    lines += ["#", "# Dockerfile:", *(f"#   {line}".rstrip() for line in task.dockerfile.splitlines()), "#"]
    if task.isolation.reason:
        lines.append(f"# isolation {task.isolation.value}: {task.isolation.reason}")
    return "\n".join([*lines, shlex.join(task.argv())])


def document(task: Task, built: Built) -> dict[str, Any]:
    """Return what came of a build, as plain values."""
    return {
        "tag": built.tag,
        "id": built.stored.id,
        "digest": built.stored.digest,
        "size_bytes": built.stored.size,
        "seconds": round(built.seconds, 3),
        "builder": {"name": task.builder.name, "version": task.builder.version},
        "isolation": task.isolation.value,
        "test": built.test,
    }


def table(task: Task, built: Built) -> str:
    """Return what came of a build, for people."""
    from tabulate import tabulate

    rows = [
        ("tag", built.tag),
        ("digest", built.stored.digest or "none before it is pushed"),
        ("id", built.stored.id),
        ("size", f"{built.stored.size / 2**20:.1f} MiB"),
        ("built by", f"{task.builder.name} in {built.seconds:.0f} s"),
    ]
    return str(tabulate(rows, tablefmt="plain"))


def report_test(found: dict[str, Any]) -> None:
    """Print what the self-test found, for people."""
    from ringleader.cli.doctor import table_of

    print(table_of(found["checks"]), file=sys.stderr)


def write_text(path: str, text: str) -> None:
    """Write a text to a file, or for ``-`` to standard output."""
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        text_files.write_text(path, text)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise RequestError(Fault(where=path, what=what)) from None
