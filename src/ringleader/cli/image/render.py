"""``ringleader image render``: a recipe as a Dockerfile or an Apptainer definition."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ringleader.cli.image.recipe_options import given, opened, recipe_options, refuse_what_clashes

if TYPE_CHECKING:
    from ringleader.images.instructions import Image
    from ringleader.images.recipe import Recipe


@click.command(name="render", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("recipe", metavar="PROFILE|FILE")
@recipe_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["dockerfile", "apptainer"]),
    default="dockerfile",
    show_default=True,
    help="What is printed.",
)
@click.option(
    "-o",
    "--output",
    callback=given,
    metavar="DIR",
    help="Write both texts, .dockerignore and all that they copy to a directory instead.",
)
@click.option("--no-check", is_flag=True, help="Do not check first whether everything fits together.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the text and the files it copies.")
def command(
    recipe: str,
    settings: tuple[str, ...],
    mirrors: tuple[str, ...],
    base: str,
    form: str,
    output: str,
    no_check: bool,
    as_json: bool,
) -> None:
    """Print a recipe as a Dockerfile, or as a definition for Apptainer.

    It is checked first (`ringleader image check`): what cannot work is refused, what is doubtful is said.
    Nothing is fetched. `docker build`, `podman build`, `buildah build` and `apptainer build` make the image
    of what -o writes.
    """
    from ringleader.images import apptainer, dockerfile, image_assembly

    wanted = opened(recipe, settings, mirrors, base)
    if not no_check:
        refuse_what_clashes(wanted)
    image = image_assembly.image(wanted)
    if output:
        _write(image, wanted, Path(output), as_json)
        return
    text = apptainer.text(image) if form == "apptainer" else dockerfile.text(image)
    if as_json:
        found = {"name": image.name, "format": form, "text": text, "context": list(image.context)}
        text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    sys.stdout.write(text)


def _write(image: Image, recipe: Recipe, output: Path, as_json: bool) -> None:
    from ringleader.cli.image import output_directory
    from ringleader.images import apptainer, dockerfile
    from ringleader.images.build_context import contents
    from ringleader.images.rendered_files import DEFINITION, DOCKERFILE, IGNORE, ignore_text

    texts = {
        DOCKERFILE: dockerfile.text(image),
        DEFINITION: apptainer.text(image),
        IGNORE: ignore_text(image),
    }
    inside = contents(image, recipe)
    output_directory.check(output, texts, inside)
    written = output_directory.write(output, texts, inside)
    if as_json:
        print(json.dumps({"name": image.name, "directory": str(output), "files": list(written)}, indent=2))
    else:
        print(f"image: {output} holds {', '.join(written)}", file=sys.stderr)
