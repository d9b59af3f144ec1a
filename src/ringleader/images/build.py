"""Builds an image: context, builder, its self-test where asked for, and what is known of the result."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ringleader.errors import Fault, RefusedError, StoppedError
from ringleader.images import build_command, build_context, build_process, build_selftest
from ringleader.images.build_command import BuildEnvironment, BuildOptions, Isolation
from ringleader.images.build_progress import Progress, Step, shortened
from ringleader.images.builders import Builder, answer
from ringleader.images.instructions import Image
from ringleader.images.recipe import Recipe

LOOK_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Stored:
    """An image in the builder's storage."""

    id: str
    """Digest of its configuration: ``sha256:…``."""
    digest: str
    """Digest of its manifest here, which a registry may repack; empty where the builder has none yet."""
    size: int
    """Bytes of its layers."""


def look(builder: Builder, image: str, *, environ: Mapping[str, str]) -> Stored:
    """Ask for an image by its id; RefusedError where the builder does not know it."""
    argv = (builder.program, *builder.global_options, *question(builder.name), image)
    said = answer(argv, environ=environ, seconds=LOOK_SECONDS)
    if said.code != 0:
        what = f"it has built {image} and does not know it: {said.words[-300:]}"
        raise RefusedError(Fault(where=builder.name, what=what))
    return stored(builder.name, said.out, image)


def question(name: str) -> tuple[str, ...]:
    """Return the sub-command that describes an image as JSON."""
    return ("inspect", "--type", "image") if name == "buildah" else ("image", "inspect")


def stored(name: str, text: str, image: str) -> Stored:
    """Read the answer."""
    try:
        found = json.loads(text)
        if name == "buildah":
            return _of_buildah(found)
        one = found[0]
        digest = one.get("Digest") or _after_at(one.get("RepoDigests"))
        return Stored(id=_with_sort(one["Id"]), digest=digest, size=int(one["Size"]))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        what = f"its answer about {image} cannot be read: {error!r}"
        raise RefusedError(Fault(where=name, what=what)) from None


def _of_buildah(found: Mapping[str, Any]) -> Stored:
    layers = json.loads(found["Manifest"])["layers"]
    return Stored(
        id=_with_sort(found["FromImageID"]),
        digest=found["FromImageDigest"],
        size=sum(int(layer["size"]) for layer in layers),
    )


def _with_sort(digest: str) -> str:
    return digest if ":" in digest else f"sha256:{digest}"


def _after_at(references: Any) -> str:
    return str(references[0]).rpartition("@")[2] if references else ""


_CAP_SYS_RESOURCE = 1 << 24
_LOG = "log"


class Watcher(Protocol):
    """Told how far a build has come."""

    def step(self, step: Step, seconds: float) -> None:
        """Take a step that begins, and the seconds since the build's start."""

    def passing(self, seconds: float) -> None:
        """Take the time that has passed; told about twice a second."""

    def say(self, text: str) -> None:
        """Take a sentence for people."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A complete build: all that happens follows from it."""

    recipe: Recipe
    image: Image
    dockerfile: str
    inside: tuple[build_context.Content, ...]
    options: BuildOptions
    builder: Builder
    isolation: Isolation
    test: bool = False
    """Run the self-test in the image; it must have one (``Image.test``). So must it for ``sbom``."""
    sbom: bool = False
    seconds: float = 21600.0
    """What the builder may take."""
    test_seconds: float = 600.0

    @property
    def has_doctor(self) -> bool:
        """Whether Ringleader is in the image. Historical images have a self-test of their own instead."""
        return self.image.test[1:2] == ("doctor",)

    def argv(self, directory: str = "BUILD") -> tuple[str, ...]:
        """Return the builder's command line for a directory that ``build_context`` has made."""
        return build_command.argv(self.options, self.builder, directory=directory, isolated=self.isolation)


@dataclass(frozen=True, kw_only=True)
class Built:
    """An image that was built."""

    tag: str
    stored: Stored
    seconds: float
    test: dict[str, Any] | None = None
    """What the self-test said; ``None``: it did not run."""
    sbom: str = ""


def build_environment(environ: Mapping[str, str]) -> BuildEnvironment:
    """Look at what decides how a builder can isolate its steps here."""
    path = environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin"
    runtime = next((found for name in ("crun", "runc") if (found := shutil.which(name, path=path))), "")
    marks = ("/.dockerenv", "/run/.containerenv")
    return BuildEnvironment(
        root=os.geteuid() == 0,
        may_raise_limits=bool(_capabilities() & _CAP_SYS_RESOURCE),
        in_container="container" in environ or any(Path(mark).exists() for mark in marks),
        runtime=runtime,
        chosen=environ.get("BUILDAH_ISOLATION", ""),
    )


def _capabilities() -> int:
    """Return our effective capabilities as Linux counts them; all of them where it does not tell."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16)
    except (OSError, ValueError):
        pass
    return -1


def build(task: Task, *, environ: Mapping[str, str], watcher: Watcher) -> Built:
    """Build an image and return what came of it.

    Raises RefusedError where the builder fails (with the step, its last lines, and the path of the full
    log), or where the self-test finds the image useless; StoppedError where a signal came. The context is
    removed in any case; the builder's process group has ended.
    """
    with build_process.stoppable(), build_context.made(task.dockerfile, task.inside) as directory:
        if task.isolation.reason:
            watcher.say(f"steps are isolated by {task.isolation.value} only: {task.isolation.reason}")
        try:
            seconds = _run(task, str(directory), environ=environ, watcher=watcher)
        except StoppedError:
            if task.builder.name == "buildah":
                watcher.say("buildah may keep a container of it: `buildah containers`, `buildah rm`")
            raise
        image = (directory / build_command.ID_FILE).read_text(encoding="utf-8").strip()
        stored = look(task.builder, image, environ=environ)
        document, sbom = None, ""
        if task.test or task.sbom:
            with build_selftest.container_of(
                task.builder,
                image,
                isolation=task.isolation.value,
                program=task.image.test[0],
                environ=environ,
            ) as place:
                if task.test:
                    watcher.say("the self-test runs in the image")
                    test = build_selftest.test if task.has_doctor else build_selftest.plain_test
                    document = test(place, seconds=task.test_seconds)
                if task.sbom:
                    sbom = build_selftest.sbom(place)
    return Built(tag=task.options.tag, stored=stored, seconds=seconds, test=document, sbom=sbom)


def _run(task: Task, directory: str, *, environ: Mapping[str, str], watcher: Watcher) -> float:
    """Run the builder; return its seconds. The log is kept where it fails, and only there."""
    progress = Progress()
    log_path = Path(directory, _LOG)
    now = 0.0

    def passing(seconds: float) -> None:
        nonlocal now
        now = seconds
        watcher.passing(seconds)

    def line(text: str) -> None:
        step = progress.feed(text)
        if step is not None:
            watcher.step(step, now)

    with log_path.open("wb") as log:
        ended = build_process.run(
            task.argv(directory),
            environ={**environ, "BUILDKIT_PROGRESS": "plain"},
            line=line,
            passing=passing,
            log=log,
            seconds=task.seconds,
        )
    if ended.exit_code != 0:
        handle, kept = tempfile.mkstemp(prefix="ringleader-image-", suffix=".log")
        os.close(handle)
        shutil.copyfile(log_path, kept)
        raise RefusedError(failure(task, progress, ended, kept))
    return ended.seconds


def failure(task: Task, progress: Progress, ended: build_process.Ended, log: str) -> Fault:
    """Return one clear message about a build that failed."""
    how = f"ended with {ended.exit_code}" if ended.exit_code is not None else "was stopped"
    after = (
        f" after {ended.seconds:.0f} s" if ended.exit_code is not None else f" after its {task.seconds:g} s"
    )
    at = progress.at
    lines = [f"{task.builder.name} {how}{after}"]
    if at is not None:
        lines[0] += f" at {shortened(str(at), 400)}"
    lines += [f"    {text}" for text in progress.last_lines]
    lines.append(f"    full log: {log}")
    hint = "" if ended.exit_code is not None else "--timeout gives it longer"
    return Fault(where=task.recipe.name, what="\n".join(lines), hint=hint)
