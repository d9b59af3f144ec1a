"""Commands whose options are fields of a dataclass, which `ringleader.option_fields` declares.

From the fields come click's parameters with old spellings and completion. Defaults come from files and
variables (`option_defaults`). All wrong values are reported at once; a command whose options have a field
``faults`` gets them there and reports them with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ringleader.cli.command_groups import Context
from ringleader.cli.option_defaults import USER, Configuration
from ringleader.errors import Fault, RequestError, nearest, refuse
from ringleader.option_fields import Changes, Declared, Part, WrongValueError, parts

COLUMN = 24
"""Widest first column of a help; longer options stand on a line before their text."""
_ALL = "ringleader.help_all"


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


Options = TypeVar("Options")
Strength = Mapping[str, int]
"""Option that was set → how strongly: command line over variable over project file over user file."""

REPLACE: Mapping[str, Any] = {"names": ("--replace",), "old": ("--force",)}
"""Declaration of the option that lets a command write over what is there."""

_STRENGTHS = {ParameterSource.COMMANDLINE: 9, ParameterSource.ENVIRONMENT: 8}
_WRONG, _ARGS = "ringleader.wrong", "ringleader.args"
"""Where a context keeps parameter → faults of its words (variables are reported elsewhere), and all words."""


class Value(click.ParamType):  # type: ignore[type-arg]
    """Reads a text as a field declares it."""

    def __init__(self, part: Part) -> None:
        """Keep the field."""
        self._part = part
        self.name = part.kind_of_value

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text. Raises WrongValueError."""
        return self._part.read(value) if isinstance(value, str) else value


class Option(click.Option):
    """An option as a field declares it: it may have old spellings, and a shell can complete its values."""

    def __init__(self, part: Part) -> None:
        """Take all from the field."""
        declared = part.declared
        assert declared is not None
        self.part, self.old, self._choices = part, frozenset(declared.old), tuple(declared.choices)
        names = [*part.names, *declared.old, part.parameter]
        super().__init__(names, help=declared.help, **_attributes(part, declared))

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Read a value; each wrong word is kept as a fault, to be reported with all others."""
        if self.multiple and isinstance(value, list | tuple):
            read = [self._read(ctx, (one,), ()) for one in value]
            return tuple(one for words in read for one in words)
        return self._read(ctx, value, () if self.multiple else None)

    def _read(self, ctx: click.Context, value: Any, otherwise: Any) -> Any:
        try:
            return super().type_cast_value(ctx, value)
        except (click.BadParameter, WrongValueError) as error:
            if ctx.resilient_parsing:
                raise
            wrong = (
                error if isinstance(error, WrongValueError) else WrongValueError(error.message.rstrip("."))
            )
            told = ctx.meta.setdefault(_WRONG, {}).setdefault(self.name, [])
            is_variable = ctx.get_parameter_source(self.name or "") is ParameterSource.ENVIRONMENT
            if not is_variable or ctx.find_object(Configuration) is None:  # which names the variable
                told.append(wrong.fault(self.part.spelling))
            return otherwise

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
        if metavar in ("FILE", "DIR", "COMMAND"):
            return [CompletionItem(incomplete, type="dir" if metavar == "DIR" else "file")]
        words = self._choices
        if not words and "|" in metavar and not set(metavar) & set("[]=: "):
            words = tuple(word for word in metavar.split("|") if not word.isupper())
        if words:
            return [CompletionItem(word) for word in words if word and word.startswith(incomplete)]
        return super().shell_complete(ctx, incomplete)


def _attributes(part: Part, declared: Declared) -> dict[str, Any]:
    """Return what click is given of an option, besides its names and its help."""
    found = dict(declared.attributes)
    found.pop("after", None)
    if part.type.startswith("bool"):
        found["is_flag"] = True
        if part.has_off:
            found["default"] = part.default
        return found
    if part.type.startswith("tuple[") and "nargs" not in found:
        found.setdefault("multiple", True)
    found.setdefault("type", Value(part))
    shown = f"[{'|'.join(declared.choices)}]" if declared.choices else None
    if shown is None and (part.kind_of_value != "text" or declared.unit == "seconds"):
        shown = "SECONDS" if declared.unit == "seconds" else "N"
    found["metavar"] = shown if declared.metavar is None else declared.metavar
    # A default that the help does not show is the field's: the same parameter may belong to several fields.
    if part.default in (MISSING, None, (), "", 0) or "efault:" in (declared.help or ""):
        return found
    if found.setdefault("show_default", True):
        found["default"] = str(part.default) if isinstance(part.default, StrEnum) else part.default
    return found


def parameters(kind: type, *, of: str = "", changed: Changes | None = None) -> list[click.Parameter]:
    """Return the parameters of a class of options, in the order of its fields; of one name the first.

    ``of``: only those that are declared for one of these families of commands.
    """
    found: dict[str, click.Parameter] = {}
    order: list[str] = []
    _collect(found, order, kind, of, changed or {}, "")
    return [found[name] for name in order]


def _collect(
    found: dict[str, click.Parameter], order: list[str], kind: type, of: str, changed: Changes, after: str
) -> str:
    """Add a class's parameters, behind ``after`` if that is given; return behind which the next stands."""
    for part in parts(kind):
        if part.kind is not None:
            how = part.group
            changes = {**how["changed"], **changed}
            last = _collect(found, order, part.kind, how["of"] or of, changes, how["after"] or after)
        elif part.declared is None or not part.declared.belongs(of):
            continue
        else:
            last = part.parameter
            if last not in found:
                found[last] = _parameter(part, changed.get(last, {}))
                places = part.declared.attributes.get("after", after).split()
                place = next((order.index(name) + 1 for name in places if name in found), len(order))
                order.insert(place, last)
        after = last if after else ""
    return after


def _parameter(part: Part, changes: Mapping[str, Any] | str) -> click.Parameter:
    declared = part.declared
    assert declared is not None
    if isinstance(changes, str):
        changes = {"help": changes}
    if changes:
        ours = {name: value for name, value in changes.items() if hasattr(declared, name)}
        rest = {name: value for name, value in changes.items() if name not in ours}
        declared = replace(declared, attributes={**declared.attributes, **rest}, **ours)
        part = replace(part, declared=declared)
    if not declared.attributes.get("positional"):
        return Option(part)
    attributes = {name: value for name, value in declared.attributes.items() if name != "positional"}
    if attributes.pop("command", False):
        attributes |= {"type": click.UNPROCESSED, "shell_complete": complete_files}
    if part.type.startswith("tuple["):
        attributes["nargs"] = -1
    is_required = part.default is MISSING
    return click.Argument([part.parameter], required=is_required, metavar=declared.metavar, **attributes)


class Command(click.Command, Generic[Options]):
    """A command that is given its options as one value."""

    context_class = Context

    def __init__(
        self,
        name: str,
        options: type[Options],
        run: Callable[[Options], int | None],
        *,
        first: Iterable[str] = (),
        everyday: str = "",
        changed: Changes | None = None,
        overridden: Callable[[Strength, Mapping[str, Any]], Collection[str]] | None = None,
        context_settings: Mapping[str, Any] | None = None,
        **attributes: Any,
    ) -> None:
        """``first``: parameters that lead the help. ``everyday``: those of the short help.

        ``changed``: what this command declares differently than the fields. Its help is the text of ``run``.

        ``overridden`` returns those options that stronger ones make void: a host file in a configuration
        file, where the command line names the hosts.
        """
        attributes.setdefault("help", run.__doc__)
        every = parameters(options, changed=changed)
        leading = {name: position for position, name in enumerate(first)}
        settings: dict[str, Any] = {"help_option_names": ["-h", "--help"], **(context_settings or {})}
        if any(one.type is click.UNPROCESSED for one in every):
            settings["allow_interspersed_args"] = False  # what follows a COMMAND is its own
        every.sort(key=lambda one: (leading.get(one.name or "", len(leading)), one.name == "command"))
        if everyday:
            every.append(_help_all())
        super().__init__(name, context_settings=settings, params=every, **attributes)
        self.run, self._options, self._overridden = run, options, overridden
        self.everyday = frozenset(everyday.split())
        """Parameters of the short help; empty: all."""

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, list[click.Parameter]]]:
        """Yield the sections of the help: everyday options, those of declared sections, all others."""
        yield from self.in_sections(self.get_params(ctx), is_full=is_full_help(ctx))

    def in_sections(
        self, every: Sequence[click.Parameter], *, is_full: bool
    ) -> Iterator[tuple[str, list[click.Parameter]]]:
        """Yield sections of some parameters; ``is_full``: of all of them, not of the everyday ones."""
        found: dict[str, list[click.Parameter]] = {"Options": []}
        rest = []
        for one in every:
            section = one.part.section if isinstance(one, Option) else ""
            if not self.everyday or self.is_everyday(one) or (is_full and section):
                found.setdefault(section or "Options", []).append(one)
            elif is_full:
                rest.append(one)
        yield from found.items()
        yield "More options", rest

    def is_everyday(self, parameter: click.Parameter) -> bool:
        """Say whether a parameter belongs to the short help."""
        is_help = isinstance(parameter, click.Option) and not parameter.expose_value
        return is_help or parameter.name in self.everyday

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        for title, parameters in self.sections(ctx):
            options = [one for one in parameters if isinstance(one, click.Option)]
            records = [record for one in options if (record := one.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records, col_max=COLUMN)

    @classmethod
    def of(
        cls, name: str, options: type[Options], **attributes: Any
    ) -> Callable[[Callable[[Options], int | None]], Command[Options]]:
        """Return a decorator that makes a command of a function, whose docstring is the help."""
        return lambda run: cls(name, options, run, **attributes)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; RequestError with all that is wrong where files and variables are wrong."""
        ctx.meta[_ARGS] = tuple(args)
        configuration = ctx.find_object(Configuration)
        if configuration is None:
            return super().parse_args(ctx, args)
        found = configuration.settings(ctx, self)
        ctx.default_map = found.default_map()
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError:
            if not found.faults:
                raise
            raise RequestError(found.faults) from None
        if faults := (*found.faults, *_empty_names(ctx)):
            raise RequestError((*faults, *faults_of_words(ctx)))
        if self._overridden is not None:
            strength = {}
            for name in ctx.params:
                source = ctx.get_parameter_source(name)
                if source is ParameterSource.DEFAULT_MAP:
                    strength[name] = found.ranks.get(name, USER)
                elif source in _STRENGTHS:
                    strength[name] = _STRENGTHS[source]
            void = self._overridden(strength, ctx.params)
            for parameter in self.params:
                if parameter.name in void:
                    is_flag = isinstance(parameter, click.Option) and parameter.is_flag
                    ctx.params[parameter.name] = () if parameter.multiple else False if is_flag else None
        return rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of options, but no old spelling of one."""
        old = {one for option in self.params if isinstance(option, Option) for one in option.old}
        return [item for item in super().shell_complete(ctx, incomplete) if item.value not in old]

    def invoke(self, ctx: click.Context) -> int:
        """Run the command; return its exit code. RequestError for words that are no values."""
        faults = tuple(faults_of_words(ctx))
        if not _takes_faults(self._options):
            refuse(faults)
        code = self.run(options_of(self._options, ctx.params, faults=faults)) or 0
        if code:
            ctx.exit(code)
        return code


def faults_of_words(ctx: click.Context) -> list[Fault]:
    """Return what is wrong with the words that were read so far."""
    return [fault for faults in ctx.meta.get(_WRONG, {}).values() for fault in faults]


def has_wrong_word(ctx: click.Context) -> frozenset[str]:
    """Return the parameters whose word is not a value; they have none, or their default."""
    return frozenset(ctx.meta.get(_WRONG, {}))


def _takes_faults(kind: type) -> bool:
    """Return whether a class of options has a field for faults, to report them with its own."""
    return any(
        one.name == "faults" or (one.kind is not None and _takes_faults(one.kind)) for one in parts(kind)
    )


def options_of(
    kind: type[Options], params: Mapping[str, Any], *, of: str = "", faults: tuple[Fault, ...] = ()
) -> Options:
    """Return click's parameters as a value. A field that holds options takes its own of them.

    ``of``: only the options of these families. ``faults``: of the words, for the fields of this name.
    """
    return kind(**_values(kind, params, of, faults))


def _values(kind: type, params: Mapping[str, Any], of: str, faults: tuple[Fault, ...]) -> dict[str, Any]:
    """Return those fields that were set."""
    values: dict[str, Any] = {}
    for part in parts(kind):
        if part.kind is not None:
            inner = _values(part.kind, params, part.group.get("of") or of, faults)
            values[part.name] = inner if part.group.get("given") else part.kind(**inner)
        elif part.name == "faults":
            values["faults"] = faults
        elif part.declared is None or not part.declared.belongs(of):
            continue
        elif (value := params.get(part.parameter)) not in (None, ()) and (value is not False or part.has_off):
            values[part.name] = not value if part.declared.negated else value
    return values


def given(ctx: click.Context) -> list[click.Parameter]:
    """Return the parameters that stand on the command line."""
    here = ParameterSource.COMMANDLINE
    return [one for one in ctx.command.params if one.name and ctx.get_parameter_source(one.name) is here]


def words_given(ctx: click.Context, without: Collection[str] = ()) -> list[str]:
    """Return the options of the command line as they were written, but for these parameters and arguments."""
    values, _, order = ctx.command.make_parser(ctx).parse_args(list(ctx.meta[_ARGS]))
    words: list[str] = []
    for parameter in dict.fromkeys(order):
        if not isinstance(parameter, Option) or parameter.name in without:
            continue
        value, name = values[parameter.name or ""], parameter.part.spelling
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                words += joined(name, one)
            elif isinstance(one, tuple):
                words += [name, *one]
            else:
                words.append(parameter.secondary_opts[-1] if one is False else name.partition("/")[0])
    return words


def joined(option: str, value: str) -> list[str]:
    """Return the words of an option with a value."""
    return [f"{option}={value}"] if option.startswith("--") else [option, value]


def misplaced(names: Callable[[str], bool], what: str, hint: str = "") -> list[Fault]:
    """Return a fault for each option on the command line that is one of ``names``."""
    here = given(click.get_current_context())
    return [Fault(where=spelling(one), what=what, hint=hint) for one in here if names(one.name or "")]


def spelling(parameter: click.Parameter) -> str:
    """Return an option as a user writes it: its longest name."""
    return max(parameter.spellings if isinstance(parameter, Option) else parameter.opts, key=len)


MEANT = {
    "-n": (
        "num-procs",
        "num-proc",
        "np",
        "nproc",
        "nproc-per-node",
        "nprocs",
        "ntasks",
        "processes",
        "ranks",
    ),
    "-H": ("host", "nodelist"),
    "--hostfile": ("machinefile", "hosts-file"),
    "--max-restarts": ("restarts", "max-restart"),
}
"""Option → what other launchers call it."""


def nearest_options(command: click.Command, word: str) -> list[str]:
    """Return those options of a command, as its help shows them, that a wrong one may mean; two at most."""
    shown = [
        name
        for one in command.params
        if isinstance(one, click.Option) and not one.hidden
        for name in (one.spellings if isinstance(one, Option) else one.opts)
    ]
    bare = word.lstrip("-")
    elsewhere = [option for option, names in MEANT.items() if bare in names and option in shown]
    return elsewhere or nearest(word, shown, most=2)


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
