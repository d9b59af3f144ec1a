"""The options of a command line as words that are kept with a run, so that it can be run again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import click
from click.core import ParameterSource

from ringleader.cli.typed_command import joined, spelling
from ringleader.render.rank_environment import is_secret


def kept_words(ctx: click.Context, without: Collection[str]) -> tuple[str, ...]:
    """Return the options of this call as words, wherever they were set, without values that sound secret.

    ``without``: parameters that belong to one call.
    """
    return words_of(ctx, set_values(ctx, without))


def set_values(ctx: click.Context, without: Collection[str]) -> dict[str, Any]:
    """Return the values that were set, of options that are kept with the run."""
    found = {}
    for name, value in ctx.params.items():
        is_default = ctx.get_parameter_source(name) in (ParameterSource.DEFAULT, None)
        if name not in without and not is_default and value is not False and value not in (None, ()):
            found[name] = value
    return found


def words_of(ctx: click.Context, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words that set these values."""
    words: list[str] = []
    for parameter in ctx.command.params:
        option, value = spelling(parameter), values.get(parameter.name or "")
        for one in () if value is None else value if isinstance(value, tuple) else (value,):
            text = f"{one:.12g}" if isinstance(one, float) else str(one)
            words += [option] if one is True else joined(option, text)
    return tuple(without_secrets(words)[0])


def without_secrets(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return words without the values of variables whose names speak of secrets, and those variables.

    A stored run takes them from the variables of the next call; those of sbatch reach the job as well.
    """
    found: list[str] = []
    secret: dict[str, str] = {}
    for before, word in zip(["", *words], words, strict=False):
        name, equals, value = word.partition("=")
        if before == "-x" and equals and is_secret(name):
            secret[name], word = value, name
        found.append(word)
    return found, secret
