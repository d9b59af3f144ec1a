"""Options declared as fields of dataclasses: spellings, help, kind and bounds, each said once.

    threads: int | None = option("Threads of each rank.", metavar="N", least=1, unit="threads")

``cli.typed_command`` makes click's parameters of such fields and reads values into them; ``faults_of_values``
checks the values of an object whoever made it, so that a Job of a program has the bounds of the command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from ringleader.errors import Fault
from ringleader.text_files import finite_number, whole_number
from ringleader.value_class import dataclass, field

_OPTION, _GROUP = "option", "group"
PORT: Mapping[str, Any] = {"metavar": "PORT", "least": 1, "most": 65535, "wrong": "{} is not a port number"}
SECONDS: Mapping[str, Any] = {"metavar": "SECONDS", "above": 0, "unit": "seconds"}
"""Declarations of a port, and of a duration."""
BEYOND = "{} is not from {least:.12g} to {most:.12g}"
LEAST = "{}, must be at least {least:g}"
"""Messages about a number beyond its bounds that name them."""


_LARGE = re.compile(r"\s*[-+]?(\d{30,}\.?\d*|\d+\.?\d*e\+?\d+)\s*", re.IGNORECASE)
"""What `text_files` refuses although it is a number."""


Changes = Mapping[str, Mapping[str, Any] | str]
"""Parameter → what a command declares differently than its field; a text is another help."""

FAMILIES = frozenset(("hosts", "scale", "bench", "cluster", "pods", "trainer", "nodes"))
"""Families of commands that options may be declared for: commands that start ranks on hosts, ``scale``,
``bench``, commands of jobs on Kubernetes, those of them that make Pods or TrainJobs, ``doctor`` of a
cluster's nodes."""


class WrongValueError(ValueError):
    """A text that is not a value of an option: what is wrong, and what to write instead."""

    def __init__(self, what: str, hint: str = "", word: str = "") -> None:
        """Both as a Fault has them; ``word``: which of several words of the option."""
        super().__init__(what)
        self.what, self.hint, self._word = what, hint, word

    def fault(self, spelling: str) -> Fault:
        """Return it as a fault of an option."""
        return Fault(where=f"{spelling} {self._word}".rstrip(), what=self.what, hint=self.hint)


@dataclass(frozen=True, kw_only=True)
class Declared:
    """An option as a field declares it."""

    help: str | None
    names: tuple[str, ...]
    """Spellings; empty: that of the field."""
    called: str = ""
    """Its spelling in messages; empty: the first long one."""
    of: frozenset[str] = frozenset()
    """Which other families of commands have it, of FAMILIES."""
    negated: bool = False
    """The option turns off what the field names: ``--no-prefix`` for ``prefix_output``."""
    metavar: str | None = None
    read: Callable[[str], Any] | None = None
    """Makes a value of a text, or raises WrongValueError; ``None``: by the type of the field."""
    choices: Collection[str] = ()
    old_choices: Collection[str] = ()
    """Values that keep working and are not shown."""
    least: float | None = None
    above: float | None = None
    """The value must be greater."""
    most: float | None = None
    unit: str = ""
    """What a number counts, for the message about a wrong one: ``threads``."""
    wrong: str = "{} {}"
    """That message, of the value and its unit."""
    unreadable: str = ""
    """The message about a text that is not a number; empty: the usual one."""
    hint: str = ""
    """What to write instead of a wrong value."""
    old: tuple[str, ...] = ()
    """Spellings that keep working and are not shown."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """What else click is given."""

    def belongs(self, of: str) -> bool:
        """Return whether it is declared for one of these families; without any all are meant."""
        return not of or not self.of.isdisjoint(of.split())

    def fault(self, value: Any) -> WrongValueError | None:
        """Return what is wrong with a value; ``None``: nothing."""
        if self.choices:
            if value in (*self.choices, *self.old_choices):
                return None
            return WrongValueError(f"{_shown(value)} is unknown", self.hint or _one_of(self.choices))
        if not _is_number(value) or self._is_within(value):
            return None
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        what = self.wrong.format(shown, self.unit, least=self.least, most=self.most).rstrip()
        return WrongValueError(what, self.hint or ("" if "{least" in self.wrong else self._bounds()))

    def _is_within(self, value: float) -> bool:
        is_above = self.above is None or value > self.above
        return is_above and (self.least is None or value >= self.least) and not self._exceeds(value)

    def _exceeds(self, value: float) -> bool:
        return self.most is not None and not value <= self.most

    def _bounds(self) -> str:
        most = "" if self.most is None else f"{self.most:.12g}"
        if self.above is not None:
            return f"use a number above {self.above:g}" + (f", at most {most}" if most else "")
        return f"use {self.least:g} to {most}" if most else f"use at least {self.least:g}"


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool)  # numpy's are numbers as well


def _shown(value: object) -> str:
    return repr(value[:80] if isinstance(value, str) else value)


def _one_of(choices: Collection[str]) -> str:
    words = [one for one in choices if one]  # an empty one is as if the option did not exist
    return f"use {' or '.join(words) if len(words) == 2 else 'one of ' + ', '.join(words)}"


_OURS = {part.name for part in fields(Declared)}


def option(help: str | None, *names: str, default: Any = None, **said: Any) -> Any:
    """Return a field with an option that takes a value; ``said`` are fields of Declared, or click's own."""
    of = _families(said.pop("of", ""))
    names = said.pop("names", names)
    attributes = {name: said.pop(name) for name in said.keys() - _OURS}
    declared = Declared(help=help, names=names, of=of, attributes=attributes, **said)
    return field(default=default, metadata={_OPTION: declared})


def _families(of: str) -> frozenset[str]:
    found = frozenset(of.split())
    if not found <= FAMILIES:
        raise ValueError(f"no family of commands is called {' or '.join(found - FAMILIES)}")
    return found


def flag(help: str, *names: str, default: bool | None = False, **said: Any) -> Any:
    """Return a field with an option that takes no value."""
    return option(help, *names, default=default, **said)


def many(help: str, *names: str, **said: Any) -> Any:
    """Return a field with an option that may be given again."""
    return option(help, *names, default=(), **said)


def argument(metavar: str, *, default: Any = MISSING, **attributes: Any) -> Any:
    """Return a field that is given by position."""
    return option(None, default=default, metavar=metavar, positional=True, **attributes)


def group(
    kind: type,
    *,
    of: str = "",
    after: str = "",
    given: bool = False,
    changed: Changes | None = None,
) -> Any:
    """Return a field whose value is an object of options.

    ``of``: only options that are declared for one of these families. ``after``: the parameter that they
    follow in the help. ``given``: the value is a mapping of the fields that were set, not an object.
    """
    _families(of)
    how = {"kind": kind, "of": of, "after": after, "given": given, "changed": changed or {}}
    return field(default_factory=dict if given else kind, metadata={_GROUP: how})


@dataclass(frozen=True, kw_only=True)
class Part:
    """A field of a class of options."""

    name: str
    parameter: str
    """As click names it: ``map_by``."""
    declared: Declared | None
    """``None``: it has no option of its own."""
    kind: type | None
    """Its class, where it holds further options."""
    group: Mapping[str, Any]
    type: str
    default: Any
    section: str = ""
    """Heading of the help under which its class wants its options; empty: the usual one."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its spellings."""
        names = self.declared.names if self.declared is not None else ()
        return names or (f"--{self.name.replace('_', '-')}",)

    @property
    def spelling(self) -> str:
        """Its spelling in messages."""
        called = "" if self.declared is None else self.declared.called
        return called or next((name for name in self.names if name.startswith("--")), self.names[0])

    @property
    def has_off(self) -> bool:
        """Whether it is a flag with a second spelling, that turns it off."""
        return any("/" in name for name in self.names)

    @property
    def kind_of_value(self) -> str:
        """What a text stands for: ``integer``, ``float`` or ``text``."""
        found = re.search(r"\b(?:int|float)\b", self.type)
        return "text" if found is None else found[0].replace("int", "integer")

    def fault(self, value: Any) -> WrongValueError | None:
        """Return what is wrong with a value that a program gave; ``None``: nothing."""
        declared = self.declared
        assert declared is not None
        if value is None and "None" in self.type:
            return None
        if self.type.startswith(("int", "float")) and not _is_number(value):
            return WrongValueError(f"{_shown(value)} is not a number")
        return declared.fault(value)

    def read(self, text: str) -> Any:
        """Return the value of a text. Raises WrongValueError."""
        declared, kind = self.declared, self.kind_of_value
        assert declared is not None
        numbers: dict[str, Callable[[str], Any]] = {"integer": whole_number, "float": finite_number}
        if declared.choices and (wrong := declared.fault(text)):
            raise wrong
        try:
            value = (declared.read or numbers.get(kind, str))(text)
        except WrongValueError:
            raise
        except ValueError as error:
            if declared.read is None and _LARGE.fullmatch(text):
                raise WrongValueError(str(error)) from None
            what, hint = "is not a number", ""
            if declared.unreadable:
                what, hint = declared.unreadable, declared.hint
            elif kind == "integer":
                what = "is not an integer"
            elif declared.unit == "seconds":
                what, hint = "is not a number of seconds", "write 90 or 1.5"
            raise WrongValueError(f"{text[:80]!r} {what}", hint) from None
        if not declared.choices and (wrong := declared.fault(value)):
            raise wrong
        return value


_KNOWN: dict[type, tuple[Part, ...]] = {}


def parts(kind: type) -> tuple[Part, ...]:
    """Return the fields of a class of options."""
    if kind not in _KNOWN:
        _KNOWN[kind] = tuple(_parts(kind))
    return _KNOWN[kind]


def _parts(kind: type) -> Iterator[Part]:
    for one in fields(kind):
        declared = one.metadata.get(_OPTION)
        how = one.metadata.get(_GROUP, {})
        yield Part(
            name=one.name,
            parameter=one.name if declared is None else parameter_name(one.name, declared.names),
            declared=declared,
            kind=how.get("kind"),
            group=how,
            type=str(one.type),
            default=one.default,
            section=getattr(kind, "SECTION", ""),
        )


def names_of(kind: type, *, of: str = "") -> frozenset[str]:
    """Return the names of all parameters of a class of options; ``of`` as in `group`."""
    found: set[str] = set()
    for part in parts(kind):
        if part.kind is not None:
            found |= names_of(part.kind, of=part.group["of"] or of)
        elif part.declared is not None and part.declared.belongs(of):
            found.add(part.parameter)
    return frozenset(found)


def spellings_set(values: Any, names: str = "") -> list[str]:
    """Return the spellings of options that have a value; ``names``: of these fields, else of all."""
    found = []
    for part in parts(type(values)):
        value = getattr(values, part.name)
        if part.kind is not None and not names:
            found += spellings_set(value)
        elif part.declared is not None and (not names or part.name in names.split()):
            found += [part.spelling] if value or (value == 0 and value is not False) else []
    return found


def parameter_name(name: str, names: tuple[str, ...]) -> str:
    """Return what click calls an option: its field's name where that is a spelling, else the longest one."""
    spelt = [word.partition("/")[0].lstrip("-").replace("-", "_") for word in names]
    return name if not spelt or name in spelt else max(spelt, key=len)


def faults_of_values(values: Any) -> list[Fault]:
    """Return what is not a value of an option or beyond its bounds, in an object and the objects in it."""
    found = []
    for part in parts(type(values)):
        value = getattr(values, part.name)
        if part.kind is not None and is_dataclass(value):
            found += faults_of_values(value)
        elif part.declared is not None and (wrong := part.fault(value)) is not None:
            found.append(wrong.fault(part.spelling))
    return found


def words_of(values: Any, usual: Any) -> list[str]:
    """Return the words of a command line that set what differs from ``usual``: flags behind the others."""
    flags: list[str] = []
    found: list[str] = []
    for part in parts(type(values)):
        value, other = getattr(values, part.name), getattr(usual, part.name)
        declared = part.declared
        if part.kind is not None and is_dataclass(value):
            found += words_of(value, other)
        elif declared is None or value == other or declared.attributes.get("positional"):
            continue
        elif isinstance(value, bool):
            flags.append(part.spelling)
        elif isinstance(value, tuple) and "nargs" not in declared.attributes:
            found += (f"{part.spelling}={_word(one)}" for one in value)
        else:
            found += (part.spelling, *map(_word, value if isinstance(value, tuple) else (value,)))
    return found + flags


def _word(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
