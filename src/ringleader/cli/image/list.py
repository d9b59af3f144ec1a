"""``ringleader image list``: the recipes that are bundled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringleader.cli.json_output import JsonOptions, show
from ringleader.cli.typed_command import Command
from ringleader.images import bundled_recipes, recipe_parser
from ringleader.images.check import selection_of
from ringleader.images.check.version_lookup import VersionLookup
from ringleader.images.tables import load
from ringleader.option_fields import group

if TYPE_CHECKING:
    from ringleader.images.recipe import Recipe

FRAMEWORKS = {
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "tensorflow-source": "TensorFlow",
    "mxnet": "MXNet",
    "horovod": "Horovod",
}


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """The options, as they were written."""

    json: JsonOptions = group(JsonOptions)


def list_profiles(options: ListOptions) -> None:
    """Print the profiles."""
    found = [_row(recipe_parser.recipe(bundled_recipes.text(name), name)) for name in bundled_recipes.names()]
    show(options.json, found, lambda: _table(found))


command = Command(
    "list",
    options=ListOptions,
    run=list_profiles,
    help="Print the profiles: the recipes that are bundled.",
)


def _table(found: Sequence[Mapping[str, Any]]) -> str:
    from tabulate import tabulate

    rows = [
        (one["name"], one["base"], ", ".join(one["frameworks"]), one["cuda"] or "-", one["about"])
        for one in found
    ]
    return f"{tabulate(rows, headers=('PROFILE', 'BASE', 'FRAMEWORKS', 'CUDA', 'ABOUT'), tablefmt='plain')}\n"


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
    selection = selection_of(recipe)
    brought = [one.cuda for one in VersionLookup(selection, load()).needs]
    return ".".join((selection.cuda or next(iter(brought), "")).split(".")[:2])
