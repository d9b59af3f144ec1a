"""Words of ``horovodrun`` become its options: command line over file, both over the environment."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ringleader import __version__
from ringleader.errors import Fault, RequestError
from ringleader.horovod_run import WrongOptionError
from ringleader.runner.common.util import config_parser
from ringleader.runner.option_table import GENERAL, OPTIONS, HorovodOption
from ringleader.text_files import read_text

DESCRIPTION = """Start COMMAND on many ranks, by Horovod's options; in the ranks 'horovod' is Ringleader."""
EPILOG = (
    "docs/guides/from-horovod.md says what each option does here. `ringleader run` has options of its own."
)


class Parser(argparse.ArgumentParser):
    """A parser that says in one message what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Leave with exit code 2."""
        self.exit(2, f"ringleader: {message}\n    → see {self.prog} --help\n")


class Interfaces(argparse.Action):
    """Adds names of interfaces to those that there are."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Take ``eth0,eth1``."""
        names = {name.strip() for name in str(values).split(",") if name.strip()}
        setattr(namespace, self.dest, (getattr(namespace, self.dest) or set()) | names)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all options."""
    made = Parser(prog="horovodrun", description=DESCRIPTION, epilog=EPILOG)
    made.add_argument("-v", "--version", action="version", version=__version__, help="Print the version.")
    groups: dict[str, Any] = {GENERAL: made}
    exclusive: dict[tuple[str, str], Any] = {}
    for name, option in OPTIONS.items():
        if option.group not in groups:
            groups[option.group] = made.add_argument_group(option.group)
        place = groups[option.group]
        if option.off or option.exclusive:
            key = (option.group, option.exclusive or name)
            if key not in exclusive:
                exclusive[key] = place.add_mutually_exclusive_group()
            place = exclusive[key]
        _add(place, name, option)
    made.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND...", help="What each rank runs.")
    return made


def _add(place: Any, name: str, option: HorovodOption) -> None:
    """Add an option, or both sides of a switch, to a parser or a group of it."""
    shown = option.help.replace("%", "%%") + (" Changes nothing here." if option.unused else "")
    if option.kind is None:
        place.add_argument(*option.names, dest=name, action="store_const", const=True, help=shown)
        if option.off:
            place.add_argument(
                *option.off, dest=name, action="store_const", const=False, help=argparse.SUPPRESS
            )
        return
    words: dict[str, Any] = {"dest": name, "help": shown}
    if option.metavar:
        words["metavar"] = option.metavar
    if option.choices:
        words["choices"] = option.choices
    if option.count > 1:
        words["nargs"] = option.count
    place.add_argument(
        *option.names, type=option.kind, **words, **({"action": Interfaces} if name == "nics" else {})
    )


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the options that the words and their file give, as attributes; the others are ``None``.

    SystemExit for words that are no options, and behind ``--help`` and ``--version``; WrongOptionError for
    values that cannot be meant, and for a file that cannot be read.
    """
    args = parser().parse_args(words)
    if args.command[:1] == ["--"]:
        del args.command[0]
    given = {name for name in OPTIONS if getattr(args, name) is not None}
    args.unknown_keys = []
    if args.config_file is not None:
        config = _file(args.config_file)
        try:
            config_parser.set_args_from_config(args, config, given)
        except WrongOptionError as error:
            raise WrongOptionError([_in_file(args.config_file, fault) for fault in error.faults]) from None
        args.unknown_keys = [f"{args.config_file}: {key}" for key in config_parser.unknown_keys(config)]
    config_parser.validate_config_args(args)
    args.run_func = args.executable = None
    return args


def _in_file(path: str, fault: Fault) -> Fault:
    return Fault(where=f"{path}: {fault.where}".removesuffix(": "), what=fault.what, hint=fault.hint)


def _file(path: str) -> Any:
    """Return what a file of options holds; an empty one holds nothing."""
    if importlib.util.find_spec("yaml") is None:
        hint = f"{sys.executable} -m pip install pyyaml"
        raise WrongOptionError("a file of options needs PyYAML", where="--config-file", hint=hint)
    from ringleader.mpijob.yaml_text import documents

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
