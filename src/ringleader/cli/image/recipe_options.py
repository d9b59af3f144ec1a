"""Which recipe a command of ``ringleader image`` is about: a profile or a file, with changes."""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ringleader.errors import Fault, RequestError, refuse
from ringleader.finding import Level
from ringleader.images import bundled_recipes, recipe_parser
from ringleader.images.check import check, selection_of
from ringleader.images.tables import load
from ringleader.option_fields import WrongValueError, argument, many, option
from ringleader.text_files import decoded, printed, read_bytes

if TYPE_CHECKING:
    from ringleader.images.recipe import Recipe


def complete_recipe(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a profile, or of a file."""
    names = [CompletionItem(name) for name in bundled_recipes.names() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


def not_empty(text: str) -> str:
    """Read a name; one that is empty is a mistake. Raises WrongValueError."""
    if not text:
        raise WrongValueError("nothing is named")
    return text


NO_CHECK = "Do not check first whether everything fits together."


def recipe_argument() -> Any:
    """Return the field that says which recipe is meant."""
    return argument("PROFILE|FILE", shell_complete=complete_recipe)


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """What changes a recipe."""

    set: tuple[str, ...] = many(
        "Change one key of the recipe: torch.version=2.9.1. Again for more; a list's parts with commas.",
        metavar="BLOCK.KEY=VALUE",
    )
    mirror: tuple[str, ...] = many(
        "Fetch from mirrors: a named set such as cn, or registry=, apt=, pip=, conda= with a URL.",
        metavar="SET|KIND=URL",
        read=not_empty,
    )
    base: str = option("Another base image.", default="", read=not_empty, metavar="REF")


UNCHANGED = RecipeOptions()


def opened(profile_or_file: str, changes: RecipeOptions = UNCHANGED) -> Recipe:
    """Return the recipe of a profile or a file (``-``: standard input), changed.

    RequestError has every fault of the text and of the changes.
    """
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
        raise RequestError(_absent(file, error)) from None


def _absent(file: str, error: Exception) -> Fault:
    reason = getattr(error, "strerror", None) or str(error)
    if "/" in file or file.endswith(".toml"):
        return Fault(where=file, what=f"cannot be read: {reason}")
    close = difflib.get_close_matches(file, bundled_recipes.names(), 1)
    hint = f"did you mean {close[0]}? " if close else ""
    what = f"is neither a profile nor a file ({reason})"
    return Fault(where=file, what=what, hint=f"{hint}ringleader image list shows the profiles")


def refuse_what_clashes(recipe: Recipe) -> None:
    """Raise RequestError with every fault of ``image check``; print what is only doubtful to standard error.

    What of a historical image cannot be fetched today, or never fitted, is doubtful: it is as it was.
    """
    faults = []
    for one in check(selection_of(recipe), load()):
        because = "".join(f"; {row}" for row in one.rows)
        if one.level is Level.FAULT:
            where = recipe.where or recipe.name
            faults.append(Fault(where=where, what=f"{one.what}{because}", hint=one.hint))
        elif one.level in ("gone", "warning"):
            works = f" → {one.hint}" if one.hint else ""
            print(f"{recipe.name}: {one.level}: {one.what}{works}", file=sys.stderr)
    refuse(faults)
