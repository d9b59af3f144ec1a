"""What an image says of itself: a file in it that the self-test reads. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from ringleader import __version__
from ringleader.images.instructions import Run, shell, write
from ringleader.images.recipe import Recipe

PLACE = "/usr/share/ringleader/image.json"
"""Where it lies in an image."""


def step(recipe: Recipe) -> Run:
    """Return the step that writes the file; it is the same for the same recipe."""
    directory = PLACE.rpartition("/")[0]
    return Run(commands=(shell("mkdir", "-p", directory), write(PLACE, text(recipe).splitlines())))


def text(recipe: Recipe) -> str:
    """Return the file's text: JSON on one line."""
    return json.dumps(document(recipe), sort_keys=True, separators=(",", ":")) + "\n"


def document(recipe: Recipe) -> dict[str, Any]:
    """Return what the file says, as plain values."""
    return {
        "name": recipe.name,
        "recipe": digest(recipe),
        "base": recipe.base,
        "historical": recipe.historical,
        "mirrors_kept": recipe.mirrors.keep,
        "blocks": {name: asdict(block) for name, block in recipe.blocks.items()},
        "ringleader": __version__,
    }


def digest(recipe: Recipe) -> str:
    """Return ``sha256:…`` of everything in a recipe but the file it came from."""
    values = asdict(recipe)
    values.pop("where")
    data = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
