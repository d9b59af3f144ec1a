"""Words of ``horovodrun`` and its file become its options, and those the ranks' variables.

The command line counts over the file, both over the environment. The options are in `option_table`. What
reads a file has Horovod's names, and the path ``runner.common.util.config_parser``.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from typing import Any, NoReturn

from ringleader import __version__
from ringleader.errors import Fault, RequestError
from ringleader.horovod_run import WrongOptionError
from ringleader.runner.option_table import LOG_LEVELS, OPTIONS, HorovodOption
from ringleader.text_files import read_text

__all__ = ["LOG_LEVELS", "parse", "set_args_from_config", "set_env_from_args", "validate_config_args"]

DESCRIPTION = """Start COMMAND on many ranks, by Horovod's options; in the ranks 'horovod' is Ringleader."""
EPILOG = "docs/guides/from-horovod.md says what each option does here. `ringleader run` has its own options."
VARIABLES = frozenset(option.variable for option in OPTIONS.values() if option.variable)
"""Also attributes of this module: ``HOROVOD_TIMELINE`` is ``"HOROVOD_TIMELINE"``."""
CONTROLLERS = {"gloo": "use_gloo", "mpi": "use_mpi"}
BY_PLACE = {(option.section, option.key): name for name, option in OPTIONS.items() if option.key}
"""Section and key of a file → field."""
_ONLY_WITH = {"autotune": "autotune", "timeline": "timeline_filename"}
"""Section whose variables are set only where this field is."""


class Parser(argparse.ArgumentParser):
    """A parser that says in one message what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Leave with exit code 2."""
        self.exit(2, f"ringleader: {message}\n    → see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of all options."""
    made = Parser(prog="horovodrun", description=DESCRIPTION, epilog=EPILOG)
    made.add_argument("-v", "--version", action="version", version=__version__, help="Print the version.")
    places: dict[tuple[str, str], Any] = {("", ""): made}
    for name, option in OPTIONS.items():
        if (option.group, "") not in places:
            places[option.group, ""] = made.add_argument_group(option.group)
        place = places[option.group, ""]
        if option.off or option.exclusive:
            among = (option.group, option.exclusive or name)
            if among not in places:
                places[among] = place.add_mutually_exclusive_group()
            place = places[among]
        _add(place, name, option)
    made.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND...", help="What each rank runs.")
    return made


def _add(place: Any, name: str, option: HorovodOption) -> None:
    """Add an option, or both sides of a switch, to a parser or a group of it."""
    shown = option.help.replace("%", "%%") + (" Changes nothing here." if option.unused else "")
    if option.kind is None:
        place.add_argument(*option.names, dest=name, action="store_const", const=True, help=shown)
        if option.off:
            off: dict[str, Any] = {"dest": name, "action": "store_const", "const": False}
            place.add_argument(*option.off, **off, help=argparse.SUPPRESS)
        return
    place.add_argument(
        *option.names,
        dest=name,
        help=shown,
        type=_interfaces if name == "nics" else option.kind,
        action="extend" if name == "nics" else "store",
        metavar=option.metavar or None,
        choices=option.choices or None,
        nargs=option.count if option.count > 1 else None,
    )


def _interfaces(word: str) -> set[str]:
    return {name.strip() for name in word.split(",") if name.strip()}


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the options that the words and their file give, as attributes; the others are ``None``.

    SystemExit for words that are no options, and behind ``--help`` and ``--version``; WrongOptionError for
    values that cannot be meant, and for a file that cannot be read.
    """
    args = parser().parse_args(words)
    if args.command[:1] == ["--"]:
        del args.command[0]
    given = {name for name in OPTIONS if getattr(args, name) is not None}
    args.nics = args.nics and set(args.nics)
    args.unknown_keys = []
    if args.config_file is not None:
        config = _file(args.config_file)
        try:
            set_args_from_config(args, config, given)
        except WrongOptionError as error:
            raise WrongOptionError([_in_file(args.config_file, fault) for fault in error.faults]) from None
        args.unknown_keys = [f"{args.config_file}: {key}" for key in args.unknown_keys]
    validate_config_args(args)
    args.run_func = args.executable = None
    return args


def _in_file(path: str, fault: Fault) -> Fault:
    return Fault(where=f"{path}: {fault.where}".removesuffix(": "), what=fault.what, hint=fault.hint)


def _file(path: str) -> Any:
    """Return what a file of options holds; an empty one holds nothing."""
    if importlib.util.find_spec("yaml") is None:
        hint = f"{sys.executable} -m pip install pyyaml"
        raise WrongOptionError("a file of options needs PyYAML", where="--config-file", hint=hint)
    from ringleader.kubernetes.mpijob.yaml_text import documents

    try:
        found = documents(read_text(os.path.expanduser(path)), path)  # noqa: PTH111
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror or error}"
        raise WrongOptionError(what, where="--config-file") from None
    except UnicodeDecodeError:
        raise WrongOptionError(f"{path} is not a text file (UTF-8)", where="--config-file") from None
    except RequestError as error:
        raise WrongOptionError(error.faults) from None
    if len(found) > 1:
        raise WrongOptionError(f"{path} holds several documents", where="--config-file")
    return found[0].value if found and found[0].value is not None else {}


def __getattr__(name: str) -> str:
    if name in VARIABLES:
        return name
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def set_args_from_config(args: Any, config: Any, override_args: Collection[str]) -> None:
    """Set the attributes of ``args`` that a file has values for, but none of ``override_args``.

    ``config`` is what the file holds: a mapping of sections. What is nothing that we, or Horovod, know stands
    in ``args.unknown_keys`` (``section.key``) then. Raises WrongOptionError (a ValueError) with everything in
    it that no option can be.
    """
    faults: list[Fault] = []
    args.unknown_keys = []
    if not isinstance(config, Mapping):
        raise WrongOptionError("holds no sections", hint="write params:, timeline: and so on")
    for section, entries in config.items():
        known = {key: name for (one, key), name in BY_PLACE.items() if one == section}
        if not known and section != "controller":
            args.unknown_keys.append(str(section))
        elif known and isinstance(entries, Mapping):
            args.unknown_keys += [f"{section}.{key}" for key in entries if key not in known]
            for key, name in known.items():
                if entries.get(key) is not None:
                    value = _checked(OPTIONS[name], entries[key], faults)
                    if name not in override_args:
                        setattr(args, name, not value if name == "no_stall_check" else value)
        elif known and entries is not None:
            hint = f"such as {next(iter(known))}:"
            faults.append(Fault(where=str(section), what="holds no keys", hint=hint))
    controller = config.get("controller")
    if controller and not any(getattr(args, name, None) for name in CONTROLLERS.values()):
        if name := CONTROLLERS.get(str(controller).lower(), ""):
            setattr(args, name, True)
        else:
            what = f"{controller!r} is unknown"
            faults.append(Fault(where="controller", what=what, hint="use gloo or mpi"))
    if faults:
        raise WrongOptionError(faults)


def validate_config_args(args: Any) -> None:
    """Raise WrongOptionError (a ValueError) for numbers that are out of their range."""
    faults = []
    for name, option in OPTIONS.items():
        value = getattr(args, name, None)
        if value is None or not (option.counts or option.largest is not None):
            continue
        if value < 0 or (option.largest is not None and value > option.largest):
            limits = "0 or more" if option.largest is None else f"a number from 0 to {option.largest:g}"
            faults.append(
                Fault(where=option.names[-1], what=f"{value} is out of range", hint=f"use {limits}")
            )
    if faults:
        raise WrongOptionError(faults)


def set_env_from_args(env: MutableMapping[str, str], args: Any) -> MutableMapping[str, str]:
    """Set the ranks' variables for the options of ``args`` that are given; return ``env``."""
    for name, option in OPTIONS.items():
        value = getattr(args, name, None)
        needs = _ONLY_WITH.get(option.section)
        if not option.variable or value is None or (needs and not getattr(args, needs, None)):
            continue
        if name != "tcp_flag" or value:
            env[option.variable] = option.text(value)
    return env


def _checked(option: HorovodOption, value: Any, faults: list[Fault]) -> Any:
    """Return a value of a file, or note that the option has no such value."""
    kinds: dict[Any, tuple[Any, str]] = {
        None: (bool, "true or false"),
        str: (str, "text"),
        float: (int | float, "a number"),
        int: (int, "an integer"),
    }
    kind, wanted = kinds[option.kind]
    right = isinstance(value, kind) and isinstance(value, bool) == (option.kind is None)
    if right and option.choices and value not in option.choices:
        right, wanted = False, ", ".join(option.choices)
    if not right:
        where = f"{option.section}.{option.key}"
        faults.append(Fault(where=where, what=f"{value!r} is not what it takes", hint=f"write {wanted}"))
    return value
