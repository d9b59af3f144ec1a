"""``ringleader image render``: a recipe as a Dockerfile or an Apptainer definition."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringleader.cli.image.recipe_options import (
    NO_CHECK,
    RecipeOptions,
    not_empty,
    opened,
    recipe_argument,
    refuse_what_clashes,
)
from ringleader.cli.json_output import JsonOptions, show
from ringleader.cli.typed_command import Command
from ringleader.option_fields import flag, group, option

if TYPE_CHECKING:
    from ringleader.images.instructions import Image
    from ringleader.images.recipe import Recipe


HELP = """Print a recipe as a Dockerfile, or as a definition for Apptainer.

It is checked first (`ringleader image check`): what cannot work is refused, what is doubtful is said.
Nothing is fetched. `docker build`, `podman build`, `buildah build` and `apptainer build` make the image
of what -o writes.
"""


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    """The options, as they were written."""

    recipe: str = recipe_argument()
    changes: RecipeOptions = group(RecipeOptions)
    format: str = option("What is printed.", default="dockerfile", choices=["dockerfile", "apptainer"])
    output: str = option(
        "Write both texts, .dockerignore and all that they copy to a directory instead.",
        "-o",
        "--output",
        default="",
        callback=not_empty,
        metavar="DIR",
    )
    no_check: bool = flag(NO_CHECK)
    json: JsonOptions = group(JsonOptions)


def render(options: RenderOptions) -> None:
    """Print the text, or write the directory."""
    from ringleader.images import apptainer, dockerfile, image_assembly

    recipe = opened(options.recipe, options.changes)
    if not options.no_check:
        refuse_what_clashes(recipe)
    image = image_assembly.image(recipe)
    if options.output:
        _write(image, recipe, options)
        return
    text = apptainer.text(image) if options.format == "apptainer" else dockerfile.text(image)
    values = {"name": image.name, "format": options.format, "text": text, "context": list(image.context)}
    show(options.json, values, lambda: text)


def _write(image: Image, recipe: Recipe, options: RenderOptions) -> None:
    from ringleader.cli.image import output_directory
    from ringleader.images import apptainer, dockerfile
    from ringleader.images.build_context import contents
    from ringleader.images.rendered_files import DEFINITION, DOCKERFILE, IGNORE, ignore_text

    texts = {
        DOCKERFILE: dockerfile.text(image),
        DEFINITION: apptainer.text(image),
        IGNORE: ignore_text(image),
    }
    inside, output = contents(image, recipe), Path(options.output)
    output_directory.check(output, texts, inside)
    written = output_directory.write(output, texts, inside)
    values = {"name": image.name, "directory": str(output), "files": list(written)}
    show(options.json, values, lambda: "")
    if not options.json.json:
        print(f"image: {output} holds {', '.join(written)}", file=sys.stderr)


command = Command(
    "render",
    options=RenderOptions,
    run=render,
    help=HELP,
)
