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
    from ringleader.images import profiles, read

    found = [_row(read.recipe(profiles.text(name), name)) for name in profiles.names()]
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
    from ringleader.images.assemble import setting_of

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
        "cuda": setting_of(recipe).cuda or _variant(recipe),
        "historical": recipe.historical,
    }


def _variant(recipe: Recipe) -> str:
    """Return what a wheel's own variant says of CUDA: ``cu126`` → ``12.6``."""
    variant = getattr(recipe.blocks.get("torch"), "variant", "")
    digits = variant.removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}" if variant.startswith("cu") and digits.isdigit() else ""
