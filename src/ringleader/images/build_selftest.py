"""Runs the self-test inside an image that was built, and reads the list of its packages there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ringleader.errors import Fault, RefusedError
from ringleader.images.builders import Answer, Builder, answer

SHORT_SECONDS = 120.0
"""To make a container, or to remove one."""
SBOM = ("doctor", "--sbom", "-")


@dataclass(frozen=True, kw_only=True)
class ImageContainer:
    """A place where commands run in the image."""

    builder: Builder
    container: str
    """buildah's working container; the image's id with the others, which make one for each command."""
    isolation: str
    program: str
    """Path of the image's own ``ringleader``, or of its self-test."""
    environ: Mapping[str, str]

    def run(self, words: tuple[str, ...], *, seconds: float) -> Answer:
        """Run the program in the image, as the image's user."""
        start = (self.builder.program, *self.builder.global_options, "run")
        if self.builder.name == "buildah":
            isolated = ("--isolation", self.isolation) if self.isolation else ()
            argv = (*start, *isolated, self.container, "--", self.program, *words)
        else:
            argv = (*start, "--rm", "--entrypoint", self.program, self.container, *words)
        return answer(argv, environ=self.environ, seconds=seconds)


@contextmanager
def container_of(
    builder: Builder, image: str, *, isolation: str, program: str, environ: Mapping[str, str]
) -> Iterator[ImageContainer]:
    """Make a container of an image and remove it in the end."""
    words = (builder.program, *builder.global_options)
    container = image
    if builder.name == "buildah":
        said = answer((*words, "from", "--pull-never", image), environ=environ, seconds=SHORT_SECONDS)
        container = said.out.strip().splitlines()[-1] if said.code == 0 and said.out.strip() else ""
        if not container:
            what = f"no container can be made of {image}: {said.words[-300:] or 'it did not answer'}"
            raise RefusedError(Fault(where="buildah", what=what))
    try:
        yield ImageContainer(
            builder=builder, container=container, isolation=isolation, program=program, environ=environ
        )
    finally:
        if builder.name == "buildah":
            answer((*words, "rm", container), environ=environ, seconds=SHORT_SECONDS)


def test(place: ImageContainer, *, seconds: float) -> dict[str, Any]:
    """Run ``ringleader doctor --image --json`` there; return what it prints, whatever it found.

    Raises RefusedError where it gives no answer.
    """
    words = ("doctor", "--image", "--json", "--timeout", f"{seconds:g}")
    said = place.run(words, seconds=seconds + SHORT_SECONDS)
    document: Any = None
    if said.out.strip():
        try:
            document = json.loads(said.out[said.out.index("{") :])
        except ValueError:
            document = None
    if not isinstance(document, dict) or "checks" not in document:
        raise RefusedError(_silent("the self-test", said))
    return document


def plain_test(place: ImageContainer, *, seconds: float) -> dict[str, Any]:
    """Run a self-test that is a program of the image itself, as historical images have it.

    It prints ``ok …`` and ``FAILED …``, one line a check, and ends with 0 where all is well.
    """
    said = place.run((), seconds=seconds)
    lines = [line.strip() for line in said.out.splitlines() if line.startswith(("ok ", "FAILED "))]
    if said.code is None or not lines:
        raise RefusedError(_silent("the self-test", said))
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


def sbom(place: ImageContainer) -> str:
    """Return the list of the image's packages, CycloneDX JSON; RefusedError where there is none."""
    said = place.run(SBOM, seconds=SHORT_SECONDS)
    if said.code != 0 or not said.out.startswith("{"):
        raise RefusedError(_silent("the list of packages", said))
    return said.out


def _silent(subject: str, said: Answer) -> Fault:
    ended = "did not end in time" if said.code is None else f"ended with {said.code}"
    lines = (said.err + said.out).strip().splitlines()[-8:]
    return Fault(
        where="image", what="\n    ".join([f"{subject} {ended} in the image without an answer", *lines])
    )
