"""Defaults of options: a project's ``ringleader.toml``, the user's file, and ``RINGLEADER_OPT_…`` variables.

click gives them their place: the command line counts before a variable (``auto_envvar_prefix``), a variable
before a file (``default_map``), the project's file before the user's. Here they are found, compared with the
options that a command has, and told apart.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from ringleader.errors import Fault, RequestError, collected, did_you_mean, refuse
from ringleader.value_class import dataclass

PREFIX = "RINGLEADER_OPT"
GROUP_OF_OLDER = "k8s"
"""Where commands are that have an older name besides, without this word."""
FILE = "ringleader.toml"
USER, PROJECT, VARIABLE = range(3)
"""Where a setting comes from, the stronger the greater."""

CHOOSE_PROGRAMS = frozenset(
    (
        *("python", "mpi", "mpirun", "mpirun_arg", "host_discovery_script", "ssh_config", "kubeconfig"),
        *("env_file", "builder", "builder_arg"),
    )
)
"""Options that name programs or libraries to run, or files that do."""
_LOADERS = re.compile(r"(LD_|PYTHON)\w*=|PATH=")
"""Values of ``-x`` that do."""

_DEPTH = 64
"""Directories above the working directory in which a project's file is looked for."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The value of an option that a file or a variable sets."""

    command: tuple[str, ...]
    option: str
    """As click names the parameter: ``map_by``."""
    value: object
    rank: int
    """USER, PROJECT or VARIABLE."""
    origin: str
    """File and table, or the variable."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is set for one command, the weakest first, and what is wrong with it."""

    every: tuple[Setting, ...] = ()
    faults: tuple[Fault, ...] = ()

    def default_map(self) -> dict[str, Any]:
        """Return what is set, for click; the later wins. Variables of present names it reads before this."""
        return {one.option: one.value for one in self.every}

    @property
    def ranks(self) -> dict[str, int]:
        """How strong the setting of each option is."""
        return {one.option: one.rank for one in self.every}

    def in_force(self) -> tuple[Setting, ...]:
        """Return the strongest setting of each option, by its name."""
        strongest = {one.option: one for one in self.every}
        return tuple(strongest[name] for name in sorted(strongest))


class Configuration:
    """Files and variables of one call. Files are read when the first command asks."""

    def __init__(self, *, environ: Mapping[str, str]) -> None:
        """Take the variables."""
        self._home = environ.get("HOME", "")
        self._config_home = environ.get("XDG_CONFIG_HOME", "")
        self._variables = {name: text for name, text in environ.items() if name.startswith(f"{PREFIX}_")}
        self.chosen: Path | None = None
        """The file of ``--config``: it takes the place of the project's, and whoever owns it is trusted."""
        self._told: set[Path] = set()

    @cached_property
    def files(self) -> tuple[tuple[int, Path, dict[str, Any]], ...]:
        """The files that there are, the weakest first: rank, path, content. Raises RequestError."""
        found, faults = [], []
        for rank, path in ((USER, self.user_file()), (PROJECT, self.chosen or project_file())):
            if path is None or not (path.is_file() or path == self.chosen):
                continue
            import tomllib  # few calls have a file

            from ringleader.text_files import read_text

            try:
                found.append((rank, path, tomllib.loads(read_text(path))))
            except tomllib.TOMLDecodeError as error:
                line = re.search(r" \(at line (\d+), column \d+\)", str(error))
                where = f"{path}:{line[1]}" if line else str(path)
                faults.append(Fault(where=where, what=str(error).replace(line[0] if line else "", "")))
            except UnicodeDecodeError:
                faults.append(Fault(where=str(path), what="is not a text file (UTF-8)"))
            except OSError as error:
                faults.append(Fault(where=str(path), what=f"cannot be read: {error.strerror or error}"))
            except (ValueError, RecursionError):
                what = "has a number of thousands of digits, or is nested too deep"
                faults.append(Fault(where=str(path), what=what))
        refuse(faults)
        return tuple(found)

    def user_file(self) -> Path | None:
        """Return where the user's own file is, or would be."""
        base = Path(self._config_home) if self._config_home.startswith("/") else None
        if base is None and self._home:
            base = Path(self._home, ".config")
        return None if base is None else base / "ringleader" / "config.toml"

    def settings(self, ctx: click.Context, command: click.Command) -> Settings:
        """Return what is set for a command, and everything wrong with that and with names of commands."""
        try:
            files = self.files
        except RequestError as error:
            return Settings(faults=error.faults)
        words = words_of(ctx)
        faults = [fault for _, path, content in files for fault in _unknown_commands(ctx, path, content)]
        faults += self._unknown_variables(ctx)
        found: list[Setting] = []
        options = configurable(command)
        for rank, path, content, where in [(*file, where) for file in files for where in _places(words)]:
            table, place = _table(content, where), f"{path} [{'.'.join(where)}]"
            if not isinstance(table, dict):
                what = "is not a table of options"
                faults.append(Fault(where=place, what=what, hint=f"write [{'.'.join(where)}] above them"))
                continue
            owner = self._other_owner(path) if table else ""
            for key, value in table.items():
                with collected(faults):
                    setting = _read(ctx, options, words, key.replace("-", "_"), value, rank, place)
                    if owner:
                        _check_owned(setting, path, owner)
                    found.append(setting)
        for name, prefix in [
            (name, _prefix(one)) for one in _places(words) for name in sorted(self._variables)
        ]:
            if name.startswith(prefix) and (text := self._variables[name]):
                with collected(faults):
                    key = name.removeprefix(prefix).lower()
                    found.append(_read(ctx, options, words, key, text, VARIABLE, name))
        return Settings(every=tuple(found), faults=tuple(faults))

    def _other_owner(self, path: Path) -> str:
        """Return who owns a file that is neither ours nor root's, and say so once; empty for others."""
        uid = path.stat().st_uid
        if uid in (os.geteuid(), 0) or path == self.chosen:
            return ""
        import pwd

        try:
            owner = f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
        except KeyError:
            owner = f"uid {uid}"
        if path not in self._told:
            self._told.add(path)
            print(f"ringleader: {path} sets defaults and belongs to {owner}", file=sys.stderr)
        return owner

    def _unknown_variables(self, ctx: click.Context) -> list[Fault]:
        known = tuple(f"{PREFIX}_{one.upper()}_" for one in _commands(ctx.find_root()))
        hint = f"{PREFIX}_RUN_NP sets --np of ringleader run"
        return [
            Fault(where=name, what="names no command", hint=hint)
            for name in sorted(self._variables)
            if not name.startswith(known)
        ]


def choose_file(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    """Take the file of ``--config`` for the project's."""
    configuration = ctx.find_object(Configuration)
    if value is not None and configuration is not None:
        configuration.chosen = Path(value)


def _table(content: Any, words: tuple[str, ...]) -> Any:
    """Return the part of a file that belongs to a command, as it is; empty where there is none."""
    for word in words:
        content = content.get(word, {}) if isinstance(content, dict) else content
    return content


def _unknown_commands(ctx: click.Context, path: Path, content: Mapping[str, Any]) -> list[Fault]:
    """Return what is not a command's table in the tables of groups, from the command upward."""
    faults = []
    while ctx.parent is not None:
        ctx = ctx.parent
        words, names = words_of(ctx), _commands(ctx)
        table = _table(content, words)
        for key, value in table.items() if isinstance(table, dict) else ():
            where = f"{path} [{'.'.join((*words, key))}]"
            if key not in names and isinstance(value, dict):
                faults.append(
                    Fault(where=where, what="there is no such command", hint=did_you_mean(key, names))
                )
            elif not isinstance(value, dict):
                what, hint = "is not in a command's table", "options belong to a command: [run]"
                faults.append(Fault(where=f"{path}: {'.'.join((*words, key))}", what=what, hint=hint))
    return faults


def _commands(ctx: click.Context) -> list[str]:
    if not isinstance(ctx.command, click.Group):
        return []
    return [*ctx.command.list_commands(ctx), *getattr(ctx.command, "older", ())]


def _places(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return where a command's options are: of one that has an older name, under that first."""
    return [words[1:], words] if words[0] == GROUP_OF_OLDER and len(words) > 1 else [words]


def _prefix(words: tuple[str, ...]) -> str:
    return f"{PREFIX}_{'_'.join(words)}_".upper().replace("-", "_")


def words_of(ctx: click.Context) -> tuple[str, ...]:
    """Return a command's name as it is typed behind ``ringleader``."""
    words: list[str] = []
    while ctx.parent is not None:
        words.insert(0, ctx.command.name or "")
        ctx = ctx.parent
    older = words and words[0] in getattr(ctx.command, "older", ())
    return (GROUP_OF_OLDER, *words) if older else tuple(words)


def configurable(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command that can be set, by each key that sets them: old spellings too."""
    options = [one for one in command.params if isinstance(one, click.Option) and one.expose_value]
    keys = [{word.lstrip("-").replace("-", "_") for word in one.opts} for one in options]
    old = {key: one for one, found in zip(options, keys, strict=True) for key in found & _old_keys(one)}
    return old | {one.name: one for one, found in zip(options, keys, strict=True) if one.name in found}


def _old_keys(option: click.Option) -> set[str]:
    return {word.lstrip("-").replace("-", "_") for word in getattr(option, "old", ()) if len(word) > 2}


def project_file() -> Path | None:
    """Return the nearest ``ringleader.toml`` from the working directory upward; ``None``: there is none.

    One that somebody else put there is not ours to follow: it must belong to us, to root, or to whoever the
    working directory belongs to. Others may write into /tmp, above a directory of ours.
    """
    try:
        directory = Path.cwd()
        owners = (os.geteuid(), 0, directory.stat().st_uid)
        for place in (directory, *directory.parents)[:_DEPTH]:
            if (place / FILE).is_file() and (place / FILE).stat().st_uid in owners:
                return place / FILE
    except OSError:
        pass  # a working directory that is gone is reported by what needs it
    return None


def _read(
    ctx: click.Context,
    options: Mapping[str, click.Option],
    words: tuple[str, ...],
    key: str,
    value: object,
    rank: int,
    place: str,
) -> Setting:
    """Return a setting. RequestError where something is wrong with it."""
    where = place if rank == VARIABLE else f"{place} {key.replace('_', '-')}"
    option = options.get(key)
    if option is None:
        names = [
            one.replace("_", "-") for one, found in options.items() if one == found.name and not found.hidden
        ]
        what = f"ringleader {' '.join(words)} has no option --{key.replace('_', '-')}"
        raise RequestError(what, where=where, hint=did_you_mean(key.replace("_", "-"), names))
    from ringleader.option_fields import WrongValueError  # few calls have a setting

    try:
        texts = _texts(option, value, is_variable=rank == VARIABLE)
        converted = [option.type.convert(text, option, ctx) for text in texts]
    except WrongValueError as wrong:
        raise RequestError(wrong.fault(where)) from None
    except click.UsageError as error:
        raise RequestError(error.message.rstrip("."), where=where) from None
    kept: object = tuple(texts) if _is_many(option) else converted[0] if option.is_flag else texts[0]
    return Setting(command=words, option=option.name or key, value=kept, rank=rank, origin=place)


def _check_owned(setting: Setting, path: Path, owner: str) -> None:
    """Raise RequestError where a file of somebody else's chooses programs or libraries."""
    values = setting.value if isinstance(setting.value, tuple) else ()
    if setting.option in CHOOSE_PROGRAMS or any(_LOADERS.match(str(value)) for value in values):
        what = f"chooses programs or libraries, and the file belongs to {owner}"
        hint = f"give it on the command line, or trust the file: ringleader --config {path} …"
        where = f"{setting.origin} {setting.option.replace('_', '-')}"
        raise RequestError(what, where=where, hint=hint)


def _texts(option: click.Option, value: object, *, is_variable: bool) -> list[str]:
    """Return a value as the command line would have it; UsageError where it is of another kind."""
    written = value
    if isinstance(value, str) and (option.nargs != 1 or (option.multiple and is_variable)):
        value = list(option.type.split_envvar_value(value))
    if option.nargs != 1 and (not isinstance(value, list) or len(value) != option.nargs):
        raise click.UsageError(f"{written!r} is not a list of {option.nargs} values")
    if is_variable:
        return value if isinstance(value, list) else [str(value)]
    if option.is_flag:
        if not isinstance(value, bool):
            raise click.UsageError(f"{value!r} is neither true nor false")
        return [str(value)]
    values = value if _is_many(option) and isinstance(value, list) else [value]
    for one in values:
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            many = "a list of texts" if _is_many(option) else "a text or a number"
            raise click.UsageError(f"{one!r} is not {many}")
        if "\0" in str(one):
            raise click.UsageError(f"{one!r} has a NUL byte")
    return [str(one) for one in values]


def _is_many(option: click.Option) -> bool:
    return option.multiple or option.nargs != 1
