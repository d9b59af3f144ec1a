"""``ringleader image render``: a recipe as a Dockerfile or an Apptainer definition."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ringleader.cli.image.recipe_options import (
    NO_CHECK,
    RECIPE,
    RECIPE_OPTIONS,
    RecipeOptions,
    not_empty,
    opened,
    refuse_what_clashes,
)
from ringleader.cli.json_output import JSON_OPTIONS, JsonOptions, show
from ringleader.cli.typed_command import Command, Option

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

    recipe: str
    format: str = "dockerfile"
    output: str = ""
    no_check: bool = False
    changes: RecipeOptions = field(default_factory=RecipeOptions)
    json: JsonOptions = field(default_factory=JsonOptions)


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
    params=[
        RECIPE,
        *RECIPE_OPTIONS,
        Option(
            ["--format"],
            type=click.Choice(["dockerfile", "apptainer"]),
            default="dockerfile",
            show_default=True,
            help="What is printed.",
        ),
        Option(
            ["-o", "--output"],
            callback=not_empty,
            metavar="DIR",
            help="Write both texts, .dockerignore and all that they copy to a directory instead.",
        ),
        NO_CHECK,
        *JSON_OPTIONS,
    ],
    help=HELP,
)
