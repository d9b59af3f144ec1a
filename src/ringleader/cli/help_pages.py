"""The help of a command: the everyday options with ``--help``, every option with ``--help-all``."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import click

_ALL = "ringleader.help_all"


class ShortHelp(click.Command):
    """A command whose help may be short."""

    def __init__(self, name: str, *, everyday: Collection[str] = (), **attributes: Any) -> None:
        """``everyday``: parameters of the short help; without them there is one help only."""
        super().__init__(name, **attributes)
        self._everyday = frozenset(everyday)
        if everyday:
            self.params.append(_help_all())

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, list[click.Parameter]]]:
        """Yield the sections of the help."""
        rest = [one for one in self.get_params(ctx) if self._everyday and not self.is_everyday(one)]
        yield "Options", [one for one in self.get_params(ctx) if one not in rest]
        if ctx.meta.get(_ALL):
            yield "More options", rest

    def is_everyday(self, parameter: click.Parameter) -> bool:
        """Say whether a parameter belongs to the short help."""
        is_help = isinstance(parameter, click.Option) and not parameter.expose_value
        return is_help or parameter.name in self._everyday

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        for title, parameters in self.sections(ctx):
            records = [record for one in parameters if (record := one.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _help_all() -> click.Option:
    def show(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            click.echo(full_help(ctx), color=ctx.color)
            ctx.exit()

    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show every option and exit.",
    )


def full_help(ctx: click.Context) -> str:
    """Return the help of a command with all its options."""
    ctx.meta[_ALL] = True
    return ctx.get_help()


def is_full_help(ctx: click.Context) -> bool:
    """Say whether all options are to be shown."""
    return bool(ctx.meta.get(_ALL))
