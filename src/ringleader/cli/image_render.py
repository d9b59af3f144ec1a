"""``ringleader image render``: a recipe as a Dockerfile or an Apptainer definition."""

from __future__ import annotations

import click

from ringleader.cli.image_recipe import opened, recipe_options


@click.command(name="render")
@click.argument("recipe", metavar="PROFILE|FILE")
@recipe_options
@click.option("--format", "form", type=click.Choice(["dockerfile", "apptainer"]), default="dockerfile")
def command(recipe: str, settings: tuple[str, ...], mirrors: tuple[str, ...], base: str, form: str) -> None:
    """Print a recipe as a Dockerfile, or as a definition for Apptainer."""
    from ringleader.images import apptainer, assemble, dockerfile

    image = assemble.image(opened(recipe, settings, mirrors, base))
    print(apptainer.text(image) if form == "apptainer" else dockerfile.text(image), end="")
