"""Builds an image: its context, the builder (``builders``), the self-test, what is known of the result."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from ringleader import __version__
from ringleader.agents import parent_death, temporary_directory
from ringleader.errors import Fault, RefusedError, StoppedError, refuse
from ringleader.images import ringleader_wheel
from ringleader.images.attestation import PROVENANCE, bases_of, provenance, statement
from ringleader.images.builders import CONTEXT, DOCKERFILE, ID_FILE, Builder, BuildOptions, Isolation
from ringleader.images.instructions import Image
from ringleader.images.processes import Answer, answer, stoppable

GRACE_SECONDS = 10.0
"""Between SIGTERM and SIGKILL of a builder."""
SHORT_SECONDS = 120.0
"""To make a container, to remove one, or to describe an image."""
TEST_SECONDS = 600.0
Contents = Mapping[str, Path | None]
"""Path below a context → what is copied there; ``None``: our own wheel, which we write."""


class Watcher(Protocol):
    """Told how far a build has come."""

    def step(self, step: str, seconds: float) -> None:
        """Take a step that begins (``stage 1/2, step 3 of 12: RUN …``), and the seconds since the start."""

    def passing(self, seconds: float) -> None:
        """Take the time that has passed; told about twice a second."""

    def say(self, text: str) -> None:
        """Take a sentence for people."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A complete build: all that happens follows from it."""

    image: Image
    dockerfile: str
    inside: Contents
    options: BuildOptions
    builder: Builder
    isolation: Isolation
    test: bool = False
    """Run the self-test in the image; it must have one (``Image.test``). So must it for ``sbom``."""
    sbom: bool = False
    seconds: float = 21600.0
    "Time limit for the builder."

    def argv(self, directory: str = "BUILD") -> tuple[str, ...]:
        """Return the builder's command line for a directory that ``made`` has made."""
        isolation = self.isolation.value
        return self.builder.build_words(self.options, directory=directory, isolation=isolation)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """An image in the builder's storage."""

    id: str
    """Digest of its configuration: ``sha256:…``."""
    digest: str
    """Digest of its manifest here, which a registry may repack; empty where the builder has none yet."""
    size: int
    """Bytes of its layers."""


@dataclass(frozen=True, kw_only=True)
class Built:
    """An image that was built."""

    tag: str
    stored: Stored
    seconds: float
    bases: Mapping[str, str]
    """Image that it began with → digest of its manifest; empty where the builder does not know it."""
    test: dict[str, Any] | None = None
    """What the self-test said; ``None``: it did not run."""
    sbom: str = ""


def build(task: Task, *, environ: Mapping[str, str], watcher: Watcher) -> Built:
    """Build an image and return what came of it.

    Raises RefusedError where the builder fails (with the step, its last lines, and the path of the full
    log), or where the self-test finds the image useless; StoppedError where a signal came. The context is
    removed in any case; the builder's process group has ended.
    """
    with stoppable(), made(task.dockerfile, task.inside) as directory:
        if task.isolation.reason:
            watcher.say(f"steps are isolated by {task.isolation.value} only: {task.isolation.reason}")
        try:
            seconds = _run(task, directory, environ=environ, watcher=watcher)
        except StoppedError:
            if task.builder.name == "buildah":
                watcher.say("buildah may keep a container of it: `buildah containers`, `buildah rm`")
            raise
        image = (directory / ID_FILE).read_text(encoding="utf-8").strip()
        stored = look(task.builder, image, environ=environ)
        bases = {}
        for base in bases_of(task.dockerfile):
            bases[base] = base.partition("@")[2]
            if bases[base] or base == task.options.tag:  # a name that is the new image's by now
                continue
            with suppress(RefusedError):  # BuildKit does not keep bases where docker finds them
                bases[base] = look(task.builder, base, environ=environ).digest
        document, sbom = None, ""
        if task.test or task.sbom:
            with _program_in(task, image, environ=environ) as program:
                if task.test:
                    watcher.say("the self-test runs in the image")
                    document = _test(program) if task.image.test[1:2] == ("doctor",) else _plain_test(program)
                if task.sbom:
                    sbom = _sbom(program)
    return Built(tag=task.options.tag, stored=stored, seconds=seconds, bases=bases, test=document, sbom=sbom)


def provenance_of(task: Task, built: Built, recipe: str) -> dict[str, Any]:
    """Return the statement of SLSA about an image that was built just now. ``recipe``: its name or file."""
    files: dict[str, str] = {}
    for path, source in task.inside.items():
        inside = sorted(source.rglob("*")) if source is not None and source.is_dir() else [source]
        for one in inside:
            if one is not None and one.is_file():
                with one.open("rb") as file:
                    name = path if one == source else f"{path}/{one.relative_to(str(source))}"
                    files[name] = hashlib.file_digest(file, "sha256").hexdigest()
    end = datetime.now(UTC)
    times = [f"{one:%Y-%m-%dT%H:%M:%SZ}" for one in (end - timedelta(seconds=built.seconds), end)]
    predicate = provenance(
        recipe=recipe,
        dockerfile=task.dockerfile,
        context=files,
        bases=built.bases,
        builder={task.builder.name: task.builder.version, "ringleader": __version__},
        argv=task.argv(),
        times=(times[0], times[1]),
    )
    return statement(built.tag, built.stored.digest or built.stored.id, PROVENANCE, predicate)


# --- the directory that a builder gets: the Dockerfile, our own wheel, and the files that a recipe names --


def contents(image: Image, where: str, *, own_wheel: bool = True) -> Contents:
    """Return what an image's context holds besides the Dockerfile, in the order of the image.

    ``where``: the file of the recipe. ``own_wheel``: the recipe names no wheel of Ringleader, so we make it.
    Raises RequestError with every file that is missing.
    """
    directory = Path(where).parent if where else Path()
    found: dict[str, Path | None] = {}
    faults = []
    for path in image.context:
        found[path] = source = directory / path
        if own_wheel and PurePosixPath(path).name == ringleader_wheel.name():
            found[path] = None
        elif not source.exists():
            hint = "paths in a recipe are relative to its directory"
            faults.append(Fault(where=where or image.name, what=f"there is no {source}", hint=hint))
        elif not os.access(source, os.R_OK):
            faults.append(Fault(where=where or image.name, what=f"{source} cannot be read"))
    refuse(faults)
    return found


@contextmanager
def made(dockerfile: str, inside: Contents) -> Iterator[Path]:
    """Make a directory with the Dockerfile and, beside it, the context; yield its path.

    Only we can read it, and it is removed in the end, come what may. The Dockerfile is not part of the
    context: a recipe may copy a file of that name. Raises RefusedError where something cannot be copied.
    """
    what = "there is no place for the context"
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(temporary_directory.directory("image"))
            what = "the context cannot be made"
            (directory / DOCKERFILE).write_text(dockerfile, encoding="utf-8")
            (directory / CONTEXT).mkdir()
            for path, source in inside.items():
                put(source, directory / CONTEXT / path)
        except OSError as error:
            hint = "TMPDIR names another place for temporary files"
            raise RefusedError(f"{what}: {error}", where=tempfile.gettempdir(), hint=hint) from None
        yield directory


def put(source: Path | None, target: Path) -> None:
    """Copy one thing to its place, or make it there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source is None:
        ringleader_wheel.write(target.parent)
    elif source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


# --- how far a build has come, and where it failed, by what the builder prints ----------------------------

LAST_LINES = 15
"""Of a failing step that are shown."""
_STEP = re.compile(r"^(?:\[(\d+/\d+)\] )?STEP (\d+)/(\d+) ?: (.*)$|^Step (\d+)/(\d+) : (.*)$")
"""buildah's and podman's ``[1/2] STEP 3/12: RUN …``, and the classical docker's ``Step 3/12 : RUN …``."""
_VERTEX = re.compile(r"^#(\d+) (?:\[(?:(\S+) )?(\d+)/(\d+)\] )?(.*)$")
"""BuildKit's ``#7 [build 3/9] RUN …``, then ``#7 0.412 …``; its steps run side by side."""
_CLOCK = re.compile(r"^\d+\.\d+ ")


@dataclass(kw_only=True)
class Progress:
    """Fed with the builder's lines, one after the other."""

    step: str = ""
    """The step that began last: ``stage 1/2, step 3 of 12: RUN …``; a stage where there are several."""
    _lines: dict[str, deque[str]] = field(default_factory=dict)
    _steps: dict[str, str] = field(default_factory=dict)
    _failed: str = ""
    """The vertex that BuildKit calls failed; others end with the step that began last."""

    def feed(self, line: str) -> str:
        """Take a line without its line feed; return the step that begins with it, or nothing."""
        begun = ""
        if found := _STEP.match(line):
            stage, *modern = found.groups()[:4]
            begun = _step(stage, *(modern if modern[0] else found.groups()[4:]))
            self._lines.pop("", None)
        elif found := _VERTEX.match(line):
            vertex, stage, number, count, text = found.groups()
            if number is not None and vertex not in self._steps:
                begun = self._steps[vertex] = _step(stage, number, count, text)
            elif number is None:
                if text.startswith("ERROR") and vertex in self._steps:
                    self._failed = vertex
                self._remember(vertex, _CLOCK.sub("", text))
        else:
            self._remember("", line)
        self.step = begun or self.step
        return begun

    def _remember(self, vertex: str, line: str) -> None:
        if line.strip():
            self._lines.setdefault(vertex, deque(maxlen=LAST_LINES)).append(line)

    @property
    def at(self) -> str:
        """Where the build stands, or failed."""
        return self._steps.get(self._failed, self.step)

    @property
    def last_lines(self) -> tuple[str, ...]:
        """What the step where the build stands has printed last."""
        return tuple(self._lines.get(self._failed, ()))


def _step(stage: str | None, number: str, count: str, command: str) -> str:
    return f"{f'stage {stage}, ' if stage else ''}step {number} of {count}: {command}"


def shortened(text: str, width: int = 100) -> str:
    """Return a text on one line of at most ``width`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


# --- the builder ------------------------------------------------------------------------------------------


def _run(task: Task, directory: Path, *, environ: Mapping[str, str], watcher: Watcher) -> float:
    """Run the builder; return its seconds. The log is kept where it fails, and only there."""
    progress, began, rest = Progress(), time.monotonic(), b""
    words = parent_death.argv(task.argv(str(directory)), seconds=GRACE_SECONDS - 1.0)
    with (directory / "log").open("wb") as log:

        def took(data: bytes) -> None:
            nonlocal rest
            log.write(data)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                text = line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
                if step := progress.feed(text):
                    watcher.step(step, time.monotonic() - began)

        ended = answer(
            words,
            environ={**environ, "BUILDKIT_PROGRESS": "plain"},
            seconds=task.seconds,
            took=took,
            passing=watcher.passing,
            grace=GRACE_SECONDS,
        )
    progress.feed(rest.decode(errors="replace"))
    if ended.err:  # all that it prints is in the log: this is why it could not be started
        raise RefusedError(f"cannot be started: {ended.err}", where=task.builder.name)
    if ended.code != 0:
        handle, kept = tempfile.mkstemp(prefix="ringleader-image-", suffix=".log")
        os.close(handle)
        shutil.copyfile(directory / "log", kept)
        raise RefusedError(_failure(task, progress, ended, kept))
    return ended.seconds


def _failure(task: Task, progress: Progress, ended: Answer, log: str) -> Fault:
    """Return one clear message about a build that failed."""
    how, hint = f"ended with {ended.code} after {ended.seconds:.0f} s", ""
    if ended.code is None:
        how, hint = f"was stopped after its {task.seconds:g} s", "--timeout gives it longer"
    at = f" at {shortened(progress.at, 400)}" if progress.at else ""
    lines = [f"{task.builder.name} {how}{at}", *progress.last_lines, f"full log: {log}"]
    return Fault(where=task.image.name, what="\n    ".join(lines), hint=hint)


def look(builder: Builder, image: str, *, environ: Mapping[str, str]) -> Stored:
    """Ask for an image by its id or name; RefusedError where the builder does not know it."""
    question = ("inspect", "--type", "image") if builder.name == "buildah" else ("image", "inspect")
    said = answer(builder.words(*question, image), environ=environ, seconds=SHORT_SECONDS)
    if said.code != 0:
        what = f"it has built {image} and does not know it: {said.words[-300:]}"
        raise RefusedError(what, where=builder.name)
    return stored(builder.name, said.out, image)


def stored(name: str, text: str, image: str) -> Stored:
    """Read a builder's description of an image, JSON; RefusedError where it is none."""
    try:
        found = json.loads(text)
        if name == "buildah":
            layers = json.loads(found["Manifest"])["layers"]
            size = sum(int(layer["size"]) for layer in layers)
            return Stored(id=_full(found["FromImageID"]), digest=found["FromImageDigest"], size=size)
        one = found[0]
        pushed = one.get("RepoDigests") or [""]
        digest = one.get("Digest") or str(pushed[0]).rpartition("@")[2]
        return Stored(id=_full(one["Id"]), digest=digest, size=int(one["Size"]))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        what = f"its answer about {image} cannot be read: {error!r}"
        raise RefusedError(what, where=name) from None


def _full(digest: str) -> str:
    return digest if ":" in digest else f"sha256:{digest}"


# --- the self-test inside the image, and the list of its packages ------------------------------------------

Program = Callable[[tuple[str, ...], float], Answer]
"""Runs the image's own program, ``ringleader`` or its self-test, as the image's user: words, seconds."""


@contextmanager
def _program_in(task: Task, image: str, *, environ: Mapping[str, str]) -> Iterator[Program]:
    """Make a container of an image and remove it in the end; yield what runs commands there."""
    builder, program = task.builder, task.image.test[0]
    if builder.name != "buildah":
        start = builder.words("run", "--rm", "--entrypoint", program, image)
        yield lambda words, seconds: answer((*start, *words), environ=environ, seconds=seconds)
        return
    made = answer(builder.words("from", "--pull-never", image), environ=environ, seconds=SHORT_SECONDS)
    container = made.out.strip().splitlines()[-1] if made.code == 0 and made.out.strip() else ""
    if not container:
        what = f"no container can be made of {image}: {made.words[-300:] or 'it did not answer'}"
        raise RefusedError(what, where="buildah")
    isolation = ("--isolation", task.isolation.value) if task.isolation.value else ()
    inside = builder.words("run", *isolation, container, "--", program)
    try:
        yield lambda words, seconds: answer((*inside, *words), environ=environ, seconds=seconds)
    finally:
        answer(builder.words("rm", container), environ=environ, seconds=SHORT_SECONDS)


def _test(program: Program) -> dict[str, Any]:
    """Return what ``ringleader doctor --image --json`` prints there; RefusedError where that is nothing."""
    words = ("doctor", "--image", "--json", "--timeout", f"{TEST_SECONDS:g}")
    said = program(words, TEST_SECONDS + SHORT_SECONDS)
    try:
        document = json.loads(said.out[said.out.index("{") :])
    except ValueError:
        document = None
    if not isinstance(document, dict) or "checks" not in document:
        raise _silent("the self-test", said)
    return document


def _plain_test(program: Program) -> dict[str, Any]:
    """Run a self-test that is a program of the image itself, as historical images have it.

    It prints ``ok …`` and ``FAILED …``, one line a check, and ends with 0 where all is well.
    """
    said = program((), TEST_SECONDS)
    lines = [line.strip() for line in said.out.splitlines() if line.startswith(("ok ", "FAILED "))]
    if said.code is None or not lines:
        raise _silent("the self-test", said)
    checks = []
    for line in lines:
        word, _, what = line.partition(" ")
        level = "PASS" if word == "ok" else "FAIL"
        checks.append({"id": what.split()[0].rstrip(":"), "level": level, "what": what, "do": ""})
    if said.code != 0 and all(check["level"] == "PASS" for check in checks):
        checks.append({"id": "image", "level": "FAIL", "what": f"it ended with {said.code}", "do": ""})
    return {"image": None, "ok": said.code == 0, "checks": checks}


def faults_of(document: Mapping[str, Any]) -> list[Fault]:
    """Return the findings of a self-test that make the image useless."""
    return [
        Fault(where=f"doctor: {check['id']}", what=check["what"], hint=check.get("do", ""))
        for check in document["checks"]
        if check["level"] == "FAIL"
    ]


def _sbom(program: Program) -> str:
    """Return the list of the image's packages, CycloneDX JSON; RefusedError where there is none."""
    said = program(("doctor", "--sbom", "-"), SHORT_SECONDS)
    if said.code != 0 or not said.out.startswith("{"):
        raise _silent("the list of packages", said)
    return said.out


def _silent(subject: str, said: Answer) -> RefusedError:
    ended = "did not end in time" if said.code is None else f"ended with {said.code}"
    lines = (said.err + said.out).strip().splitlines()[-8:]
    what = f"{subject} {ended} in the image without an answer"
    return RefusedError("\n    ".join([what, *lines]), where="image")
