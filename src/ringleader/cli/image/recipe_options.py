"""Which image a command of ``ringleader image`` is about: a profile or a file, with changes; its texts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ringleader.errors import Fault, RequestError, did_you_mean, refuse
from ringleader.finding import Finding, Level
from ringleader.images import bundled_recipes, recipe_parser
from ringleader.images.bundled_recipes import HISTORICAL, Historical
from ringleader.images.check import check, selection_of
from ringleader.images.tables import load
from ringleader.option_fields import WrongValueError, argument, many, option
from ringleader.text_files import decoded, printed, read_bytes

if TYPE_CHECKING:
    from ringleader.images.build import Contents
    from ringleader.images.instructions import Image
    from ringleader.images.recipe import Recipe

NO_CHECK = "Skip the check of whether everything fits together."
FROZEN = "a historical image is kept as it is"
COPY = "change a copy: ringleader image render {} > Dockerfile"


def profiles() -> tuple[str, ...]:
    """Return the names of the bundled recipes and of the historical images, sorted."""
    return tuple(sorted((*bundled_recipes.names(), *HISTORICAL)))


def complete_recipe(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a profile, or of a file."""
    names = [CompletionItem(name) for name in profiles() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


def not_empty(text: str) -> str:
    """Read a name; one that is empty is a mistake. Raises WrongValueError."""
    if not text:
        raise WrongValueError("nothing is named")
    return text


def recipe_argument() -> Any:
    """Return the field that says which recipe is meant."""
    return argument("PROFILE|FILE", shell_complete=complete_recipe)


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """What changes a recipe."""

    set: tuple[str, ...] = many(
        "Override a key of the recipe, for example torch.version=2.9.1 (keys: docs/reference/images.md). "
        "Separate list items with commas. Can be repeated.",
        metavar="BLOCK.KEY=VALUE",
    )
    mirror: tuple[str, ...] = many(
        "Download from mirrors: a named set such as cn, or registry=, apt=, pip= or conda= and a URL.",
        metavar="SET|KIND=URL",
        read=not_empty,
    )
    base: str = option("Use another base image.", default="", read=not_empty, metavar="REF")


UNCHANGED = RecipeOptions()


def opened(profile_or_file: str, changes: RecipeOptions = UNCHANGED) -> Recipe:
    """Return the recipe of a profile or a file (``-``: standard input), changed.

    RequestError has every fault of the text and of the changes, and where a historical image has no recipe.
    """
    if profile_or_file in HISTORICAL:
        hint = COPY.format(profile_or_file)
        raise RequestError(f"{FROZEN}, without a recipe", where=profile_or_file, hint=hint)
    if profile_or_file in bundled_recipes.names():
        text, where = bundled_recipes.text(profile_or_file), profile_or_file
    else:
        text = _text(profile_or_file)
        where = "standard input" if profile_or_file == "-" else profile_or_file
    return recipe_parser.recipe(text, where, changes.set, changes.mirror, changes.base)


def _text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else read_bytes(file)
        return printed(decoded(data))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RequestError("is not UTF-8", where=f"{file}:{line}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if "/" in file or file.endswith(".toml"):
            raise RequestError(f"cannot be read: {reason}", where=file) from None
        what = f"is neither a profile nor a file ({reason})"
        hint = f"{did_you_mean(file, profiles())} ringleader image list shows the profiles".strip()
        raise RequestError(what, where=file, hint=hint) from None


def opened_historical(name: str, changes: RecipeOptions) -> Historical | None:
    """Return a historical image; ``None``: it is none. RequestError for changes, which it cannot take."""
    if name not in HISTORICAL:
        return None
    if changes != UNCHANGED:
        raise RequestError(f"{FROZEN}: no option changes it", where=name, hint=COPY.format(name))
    return bundled_recipes.historical(name)


def opened_image(
    name: str, changes: RecipeOptions, *, checked: bool, machine: str = "x86_64"
) -> tuple[Image, Callable[[], Contents]]:
    """Return the image of a profile or a file for a machine, and what finds the files of its context.

    ``checked``: RequestError has every fault of ``image check``; what is only doubtful, or can no longer be
    had, is printed to standard error.
    """
    from ringleader.images import build, image_assembly

    historical = opened_historical(name, changes)
    if historical is not None:
        if machine != "x86_64":
            what = f"a historical image is for linux/amd64 only, not for {machine}"
            raise RequestError(what, where=name)
        if checked:
            _refuse_faults(historical.findings, name, name)
        return historical.image, dict
    recipe = opened(name, changes)
    if checked:
        refuse_what_clashes(recipe)
    image = image_assembly.image(recipe, machine)
    own_wheel = not getattr(recipe.blocks.get("ringleader"), "wheel", "")
    return image, lambda: build.contents(image, recipe.where, own_wheel=own_wheel)


def refuse_what_clashes(recipe: Recipe) -> None:
    """Raise RequestError with every fault of ``image check``; print what is only doubtful."""
    _refuse_faults(check(selection_of(recipe), load()), recipe.name, recipe.where or recipe.name)


def _refuse_faults(findings: Iterable[Finding], name: str, where: str) -> None:
    faults = []
    for one in findings:
        because = "".join(f"; {row}" for row in one.rows)
        if one.level is Level.FAULT:
            faults.append(Fault(where=where, what=f"{one.what}{because}", hint=one.hint))
        elif one.level in (Level.GONE, Level.WARNING):
            works = f" → {one.hint}" if one.hint else ""
            print(f"{name}: {one.level}: {one.what}{works}", file=sys.stderr)
    refuse(faults)
