"""The options of a command line as words that are kept with a run, so that it can be run again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import click
from click.core import ParameterSource

from ringleader.cli.typed_command import spelling
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
        name, value = parameter.name or "", values.get(parameter.name or "")
        for one in () if value is None else value if isinstance(value, tuple) else (value,):
            words += _option(spelling(parameter), one, name)
    return tuple(words)


def _option(option: str, value: object, name: str) -> list[str]:
    if value is True:
        return [option]
    text = f"{value:.12g}" if isinstance(value, float) else str(value)
    if name == "x" and is_secret(text.partition("=")[0]):
        text = text.partition("=")[0]
    return [f"{option}={text}"] if option.startswith("--") else [option, text]
