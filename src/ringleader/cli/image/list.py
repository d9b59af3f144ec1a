"""``ringleader image list``: the recipes that come along."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ringleader.images.recipe import Recipe

FRAMEWORKS = {
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "tensorflow-source": "TensorFlow",
    "mxnet": "MXNet",
    "horovod": "Horovod",
}


@click.command(name="list", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Print the profiles: the recipes that come along."""
    from ringleader.images import bundled_recipes, recipe_parser

    found = [_row(recipe_parser.recipe(bundled_recipes.text(name), name)) for name in bundled_recipes.names()]
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from tabulate import tabulate

    rows = [
        (one["name"], one["base"], ", ".join(one["frameworks"]), one["cuda"] or "-", one["about"])
        for one in found
    ]
    print(tabulate(rows, headers=("PROFILE", "BASE", "FRAMEWORKS", "CUDA", "ABOUT"), tablefmt="plain"))


def _row(recipe: Recipe) -> dict[str, Any]:
    frameworks = [
        f"{title} {recipe.blocks[name].version}"
        for name, title in FRAMEWORKS.items()
        if name in recipe.blocks
    ]
    return {
        "name": recipe.name,
        "about": recipe.about,
        "base": recipe.base,
        "frameworks": frameworks,
        "cuda": _cuda(recipe),
        "historical": recipe.historical,
    }


def _cuda(recipe: Recipe) -> str:
    """Return the CUDA of an image, as 12.8: the base's, else the one that its wheels bring; empty: none."""
    from ringleader.images.check import selection_of
    from ringleader.images.check.version_lookup import Seen
    from ringleader.images.tables import load

    selection = selection_of(recipe)
    brought = [one.cuda for one in Seen(selection, load()).needs]
    return ".".join((selection.cuda or next(iter(brought), "")).split(".")[:2])
