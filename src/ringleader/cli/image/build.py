"""``ringleader image build``: a recipe becomes an image in the storage of buildah, podman or docker."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO

from ringleader.cli.image.recipe_options import NO_CHECK, RecipeOptions, opened_image, recipe_argument
from ringleader.cli.options.option_checks import unwritable, write_text
from ringleader.cli.output import JsonOptions, dumped, result_to, show, table
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RefusedError, RequestError, refuse
from ringleader.images.builders import BuildOptions, build_environment, find, isolation, tag_of
from ringleader.option_fields import SECONDS, WrongValueError, flag, group, option

if TYPE_CHECKING:
    from ringleader.images.build import Built, Task


class BuildDisplay:
    """Shows steps and elapsed time on a stream."""

    def __init__(self, *, stream: TextIO, is_tty: bool, width: int = 110) -> None:
        """``is_tty``: the line is overwritten by the next one, and its clock runs."""
        self._stream, self._is_tty, self._width = stream, is_tty, width
        self._line = ProgressLine(prefix="", is_tty=is_tty, write=self._write, width=width + 1)
        self._now = ""
        self._second = -1

    def step(self, step: str, seconds: float) -> None:
        """Show a step that begins."""
        self._now = " ".join(step.split())
        self._show(seconds)

    def passing(self, seconds: float) -> None:
        """Let the clock run."""
        if self._is_tty and int(seconds) != self._second:
            self._show(seconds)

    def say(self, text: str) -> None:
        """Show a sentence."""
        self._line.keep(f"ringleader: {text}")

    def finish(self) -> None:
        """Leave an empty line behind."""
        self._line.clear()

    def _show(self, seconds: float) -> None:
        self._second = int(seconds)
        whole = f"[{clock(seconds)}] {self._now or 'the builder starts'}"
        text = whole if len(whole) <= self._width else whole[: self._width - 1] + "…"
        (self._line.show if self._is_tty else self._line.keep)(text)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def clock(seconds: float) -> str:
    """Return a duration as ``m:ss``."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def driver_name(text: str) -> str:
    """Read the name of a storage driver; empty: the builder's own. Raises WrongValueError."""
    if text and re.fullmatch(r"[a-z0-9]+", text) is None:
        raise WrongValueError(f"{text!r} is not a name", "such as overlay or vfs")
    return text


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """The options, as they were written."""

    recipe: str = recipe_argument()
    how: BuildOptions = group(BuildOptions)
    builder: str | None = option(
        "Program to build with. [default: the first of them that works]",
        choices=["buildah", "podman", "docker"],
        after="tag",
    )
    storage_driver: str = option(
        "Storage driver of buildah or podman: overlay, vfs.",
        default="",
        read=driver_name,
        metavar="NAME",
        after="isolation",
    )
    no_check: bool = flag(NO_CHECK)
    test: bool = flag("Run the self-test in the built image, and exit with an error if it fails.")
    sbom: str | None = option(
        "Write a CycloneDX SBOM of the image's packages (`-` for standard output).", metavar="FILE"
    )
    provenance: str | None = option(
        "Write an SLSA provenance statement (in-toto JSON).",
        metavar="FILE",
    )
    timeout: float = option("Time limit for the builder.", default=21600, **SECONDS)
    dry_run: bool = flag("Print the context, the Dockerfile and the builder's command, and stop.")
    json: JsonOptions = group(JsonOptions)
    changes: RecipeOptions = group(RecipeOptions)


@Command.of("build", ImageOptions, no_args_is_help=True)
def command(options: ImageOptions) -> None:
    """Build an image from a recipe with buildah, podman or docker: the first of them that works.

    PROFILE is a built-in recipe (see `ringleader image list`); FILE is a recipe in TOML.

    \b
      ringleader image build pytorch-cpu --tag example.org/team/train:1
      ringleader image build my.toml --test --sbom sbom.json
      ringleader image build my.toml --dry-run

    Credentials for registries are those of the builder (buildah login, podman login, docker login).
    """
    printed = [f"--{name} -" for name in ("sbom", "provenance") if getattr(options, name) == "-"]
    if len(printed) + options.json.json > 1:
        raise RequestError("only one of them can be standard output", where=", ".join(printed))
    task = build_task(options)
    if options.dry_run:
        show(options.json, dry_run_values(task), lambda: f"{dry_run_text(task)}\n")
        return
    from ringleader.cli.doctor.command import table_of
    from ringleader.images.build import build as build_image
    from ringleader.images.build import faults_of, provenance_of

    with result_to(options.json) as result:
        display = BuildDisplay(stream=sys.stderr, is_tty=sys.stderr.isatty())
        try:
            built = build_image(task, environ=os.environ, watcher=display)
        finally:
            display.finish()
        if built.sbom:
            write_text(options.sbom or "", built.sbom)
        if options.provenance:
            write_text(options.provenance, dumped(provenance_of(task, built, options.recipe)))
        result.show(document(task, built), lambda: "" if printed else f"{built_table(task, built)}\n")
    if built.test is not None:
        print(table_of(built.test["checks"]), file=sys.stderr)
        refuse(faults_of(built.test), RefusedError)


def build_task(options: ImageOptions) -> Task:
    """Return the build that was asked for, all that can be known before it begins checked."""
    from ringleader.images import dockerfile
    from ringleader.images.build import Task
    from ringleader.images.lock_file import MACHINES

    how = options.how
    refuse([*unwritable("--sbom", options.sbom), *unwritable("--provenance", options.provenance)])
    machine = MACHINES.get((how.platform or platform.machine()).rpartition("/")[2], "x86_64")
    checked, faults = not options.no_check, []
    image, contents = opened_image(options.recipe, options.changes, checked=checked, machine=machine)
    if options.test and not image.test:
        what = "the recipe has no block ringleader, so nothing in the image can test it"
        faults.append(Fault(where="--test", what=what, hint="add [ringleader] to the recipe"))
    if options.sbom and image.test[1:2] != ("doctor",):
        what = "Ringleader is not in the image, which would write the list"
        faults.append(Fault(where="--sbom", what=what, hint="add [ringleader] to the recipe"))
    refuse(faults)
    timestamp, epoch = how.timestamp, os.environ.get("SOURCE_DATE_EPOCH", "")
    if timestamp is None and epoch.isdecimal():
        timestamp = int(epoch)
    inside = contents()
    builder = find(options.builder or "", environ=os.environ, storage_driver=options.storage_driver)
    task = Task(
        image=image,
        dockerfile=dockerfile.text(image),
        inside=inside,
        options=replace(how, tag=tag_of(how.tag, image.name), timestamp=timestamp),
        builder=builder,
        isolation=isolation(how.isolation, builder, build_environment(os.environ)),
        test=options.test,
        sbom=bool(options.sbom),
        seconds=options.timeout,
    )
    task.argv()  # what the builder cannot do is said now
    return task


def dry_run_values(task: Task) -> dict[str, Any]:
    """Return what would be done, as plain values."""
    return {
        "builder": {"name": task.builder.name, "version": task.builder.version},
        "isolation": {"value": task.isolation.value, "reason": task.isolation.reason},
        "context": [
            {"path": path, "from": str(source) if source else None} for path, source in task.inside.items()
        ],
        "dockerfile": task.dockerfile,
        "argv": list(task.argv()),
    }


def dry_run_text(task: Task) -> str:
    """Return what would be done, as a text: a shell script in which the Dockerfile is a comment."""
    lines = ["# BUILD, a temporary directory of mode 0700:", "#   Dockerfile", "#   context/"]
    for path, source in task.inside.items():
        lines.append(f"#   {path}  ({f'from {source}' if source else 'made of this installation'})")
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
        "bases": dict(built.bases),
        "seconds": round(built.seconds, 3),
        "builder": {"name": task.builder.name, "version": task.builder.version},
        "isolation": task.isolation.value,
        "test": built.test,
    }


def built_table(task: Task, built: Built) -> str:
    """Return what came of a build, for people."""
    rows = [
        ("tag", built.tag),
        ("digest", built.stored.digest or "none before it is pushed"),
        ("id", built.stored.id),
        ("size", f"{built.stored.size / 2**20:.1f} MiB"),
        *(("base", f"{base.partition('@')[0]}@{digest}") for base, digest in built.bases.items() if digest),
        ("built by", f"{task.builder.name} in {built.seconds:.0f} s"),
    ]
    return table(rows, form="plain")
