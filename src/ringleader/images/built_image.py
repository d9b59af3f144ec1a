"""What a builder says about an image that it has built."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.errors import Fault, RefusedError
from ringleader.images.builders import Builder, answer

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
