"""What every command has: typed options with old spellings, completion, defaults from files and variables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ringleader.cli.help_pages import ShortHelp
from ringleader.cli.option_defaults import USER, Configuration
from ringleader.errors import Fault, RequestError
from ringleader.text_files import MOST_DIGITS

Options = TypeVar("Options")
Strength = Mapping[str, int]
"""Option that was set → how strongly: command line over variable over project file over user file."""

REPLACE = ("--replace", "--force")
"""Spellings of the option that lets a command write over what is there."""

_COMMAND_LINE, _VARIABLE = 9, 8


class Option(click.Option):
    """An option that may have old spellings, and whose values a shell can complete."""

    def __init__(self, names: Sequence[str], *, old: Sequence[str] = (), **attributes: Any) -> None:
        """``old``: spellings that keep working and are not shown."""
        super().__init__([*names, *old], **attributes)
        self.old = frozenset(old)

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Read a value; BadParameter also for a number that is not finite, or has hundreds of digits."""
        found = super().type_cast_value(ctx, value)
        for one in found if isinstance(found, tuple) else (found,):
            if isinstance(one, int | float) and not abs(one) < 10**MOST_DIGITS:
                raise click.BadParameter(f"{str(value)[:80]!r} is not a finite number", ctx, self)
        return found

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return what the help says, without the old spellings."""
        every, self.opts = self.opts, self.spellings
        try:
            record = super().get_help_record(ctx)
        finally:
            self.opts = every
        return record and (record[0].rstrip(), record[1])

    @property
    def spellings(self) -> list[str]:
        """The spellings that are shown."""
        return [one for one in self.opts if one not in self.old]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a value by what the help calls it: FILE, DIR, or ``one|other``."""
        metavar = self.metavar or ""
        if metavar in ("FILE", "DIR"):
            return [CompletionItem(incomplete, type=metavar.lower())]
        if "|" in metavar and not set(metavar) & set("[]=: "):
            words = (word for word in metavar.split("|") if not word.isupper())
            return [CompletionItem(word) for word in words if word.startswith(incomplete)]
        return super().shell_complete(ctx, incomplete)


class Command(ShortHelp, Generic[Options]):
    """A command that is given its options as one value."""

    def __init__(
        self,
        name: str,
        *,
        options: type[Options],
        run: Callable[[Options], int | None],
        everyday: Collection[str] = (),
        overridden: Callable[[Strength, Mapping[str, Any]], Collection[str]] | None = None,
        context_settings: Mapping[str, Any] | None = None,
        **attributes: Any,
    ) -> None:
        """``everyday``: parameters of the short help; without them there is one help only.

        ``overridden`` returns those options that stronger ones make void: a host file in a configuration
        file, where the command line names the hosts.
        """
        settings = {"help_option_names": ["-h", "--help"], **(context_settings or {})}
        super().__init__(name, everyday=everyday, context_settings=settings, **attributes)
        self._options, self._run, self._overridden = options, run, overridden

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; RequestError with all that is wrong in files and variables."""
        configuration = ctx.find_object(Configuration)
        if configuration is None:
            return super().parse_args(ctx, args)
        found = configuration.settings(ctx, self)
        if found.faults and not {"-h", "--help", "--help-all"} & set(args):
            raise RequestError(found.faults)
        ctx.default_map = found.default_map()
        rest = super().parse_args(ctx, args)
        faults = (*found.faults, *_empty_names(ctx))
        if faults:
            raise RequestError(faults)
        if self._overridden is not None:
            strength = {name: _strength(ctx, name, found.ranks) for name in ctx.params}
            strength = {name: number for name, number in strength.items() if number >= 0}
            for parameter in self.params:
                if parameter.name in self._overridden(strength, ctx.params):
                    ctx.params[parameter.name] = _nothing(parameter)
        return rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of options, but no old spelling of one."""
        old = {one for option in self.params if isinstance(option, Option) for one in option.old}
        return [item for item in super().shell_complete(ctx, incomplete) if item.value not in old]

    def invoke(self, ctx: click.Context) -> int:
        """Run the command; return its exit code."""
        code = self._run(options_of(self._options, ctx.params)) or 0
        if code:
            ctx.exit(code)
        return code


def options_of(kind: type[Options], params: Mapping[str, Any]) -> Options:
    """Return click's parameters as a value. A field that is made by a dataclass takes its own of them."""
    values = {}
    for part in fields(kind):  # type: ignore[arg-type]
        made_by: Any = part.default_factory
        is_nested = is_dataclass(made_by)
        values[part.name] = options_of(made_by, params) if is_nested else params[part.name]
    return kind(**values)


def given(ctx: click.Context) -> list[click.Parameter]:
    """Return the parameters that stand on the command line."""
    here = ParameterSource.COMMANDLINE
    return [one for one in ctx.command.params if one.name and ctx.get_parameter_source(one.name) is here]


def spelling(parameter: click.Parameter) -> str:
    """Return an option as a user writes it: its longest name."""
    return max(parameter.spellings if isinstance(parameter, Option) else parameter.opts, key=len)


def complete_files(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the words of COMMAND, or names of files."""
    return [CompletionItem(incomplete, type="file")]


def _empty_names(ctx: click.Context) -> list[Fault]:
    """Return a fault for each argument that is empty, but for words of a command."""
    every = [one for one in ctx.command.params if isinstance(one, click.Argument)]
    return [
        Fault(
            where=one.make_metavar(ctx).strip("[].…"),
            what="is empty",
            hint="is a variable of the shell unset?",
        )
        for one in every
        if one.type is not click.UNPROCESSED
        and "" in (value if isinstance(value := ctx.params.get(one.name or ""), tuple) else (value,))
    ]


def _strength(ctx: click.Context, name: str, ranks: Mapping[str, int]) -> int:
    source = ctx.get_parameter_source(name)
    if source is ParameterSource.COMMANDLINE:
        return _COMMAND_LINE
    if source is ParameterSource.ENVIRONMENT:
        return _VARIABLE
    return ranks.get(name, USER) if source is ParameterSource.DEFAULT_MAP else -1


def _nothing(parameter: click.Parameter) -> Any:
    """Return the value of a parameter that was not given."""
    if parameter.multiple:
        return ()
    return False if isinstance(parameter, click.Option) and parameter.is_flag else None
