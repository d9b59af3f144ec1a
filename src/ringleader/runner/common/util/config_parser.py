"""Options of ``horovodrun`` from its file, and what becomes of them in the ranks' environment.

Path, names and meanings are Horovod's; the options stand in `ringleader.runner.option_table`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping
from typing import Any

from ringleader.errors import Fault
from ringleader.horovod_run import WrongOptionError
from ringleader.runner.option_table import LOG_LEVELS, OPTIONS, HorovodOption

__all__ = ["LOG_LEVELS", "set_args_from_config", "set_env_from_args", "validate_config_args"]

VARIABLES = frozenset(option.variable for option in OPTIONS.values() if option.variable)
"""Also attributes of this module: ``HOROVOD_TIMELINE`` is ``"HOROVOD_TIMELINE"``."""
CONTROLLERS = {"gloo": "use_gloo", "mpi": "use_mpi"}
BY_PLACE = {(option.section, option.key): name for name, option in OPTIONS.items() if option.key}
"""Section and key of a file → field."""
_ONLY_WITH = {"autotune": "autotune", "timeline": "timeline_filename"}
"""Section whose variables are set only where this field is."""


def __getattr__(name: str) -> str:
    if name in VARIABLES:
        return name
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def set_args_from_config(args: Any, config: Any, override_args: Collection[str]) -> None:
    """Set the attributes of ``args`` that a file has values for, but none of ``override_args``.

    ``config`` is what the file holds: a mapping of sections. Raises WrongOptionError (a ValueError) with
    everything in it that no option can be.
    """
    faults: list[Fault] = []
    for name, value in _values(config, faults):
        if name not in override_args:
            setattr(args, name, value)
    controller = config.get("controller") if isinstance(config, Mapping) else None
    if controller and not any(getattr(args, name, None) for name in CONTROLLERS.values()):
        name = CONTROLLERS.get(str(controller).lower(), "")
        if name:
            setattr(args, name, True)
        else:
            faults.append(
                Fault(where="controller", what=f"{controller!r} is unknown", hint="use gloo or mpi")
            )
    if faults:
        raise WrongOptionError(faults)


def unknown_keys(config: Any) -> list[str]:
    """Return what stands in a file and is nothing that we, or Horovod, know: ``section.key``."""
    sections = {section for section, _ in BY_PLACE}
    found = [str(name) for name in config if name not in sections and name != "controller"]
    for section, entries in config.items():
        if section in sections and isinstance(entries, Mapping):
            found += [f"{section}.{key}" for key in entries if (section, key) not in BY_PLACE]
    return found


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


def _values(config: Any, faults: list[Fault]) -> list[tuple[str, Any]]:
    """Return fields and their values."""
    if not isinstance(config, Mapping):
        faults.append(Fault(where="", what="holds no sections", hint="write params:, timeline: and so on"))
        return []
    found: list[tuple[str, Any]] = []
    for section, entries in config.items():
        known = {key: name for (one, key), name in BY_PLACE.items() if one == section}
        if not known or entries is None:
            continue
        if not isinstance(entries, Mapping):
            faults.append(
                Fault(where=str(section), what="holds no keys", hint=f"such as {next(iter(known))}:")
            )
            continue
        for key, name in known.items():
            value = entries.get(key)
            if value is not None:
                found.append((name, _checked(OPTIONS[name], value, faults)))
    return [(name, not value if name == "no_stall_check" else value) for name, value in found]


def _checked(option: HorovodOption, value: Any, faults: list[Fault]) -> Any:
    """Return a value of a file, or note that the option has no such value."""
    where = f"{option.section}.{option.key}"
    if option.kind is None:
        right, wanted = isinstance(value, bool), "true or false"
    elif option.kind is str:
        right, wanted = isinstance(value, str), "text"
    elif option.kind is float:
        right, wanted = isinstance(value, int | float) and not isinstance(value, bool), "a number"
    else:
        right, wanted = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    if right and option.choices and value not in option.choices:
        right, wanted = False, ", ".join(option.choices)
    if not right:
        faults.append(Fault(where=where, what=f"{value!r} is not what it takes", hint=f"write {wanted}"))
    return value
