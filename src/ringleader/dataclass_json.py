"""Dataclasses as JSON values and back; what is wrong in values of others is reported with its place.

    rates: tuple[float, ...] = bounded(above=0, wrong="{} is not a rate: it must be above 0")

`text_files.json_document` makes values of a text. A field has the type str, int, float, bool, StrEnum,
another dataclass, ``tuple[X, ...]``, ``Mapping[K, V]`` or ``X | None``.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import types
import typing
from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from ringleader.value_class import dataclass

T = TypeVar("T")
Faults = list[tuple[str, str]]
"""Places in a document, ``points[1].rate``, and what is wrong there."""
_BOUNDS = "bounds"
_PLAIN = {str: "text", int: "an integer", float: "a number", bool: "true or false"}


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What the value of a field may be; of a tuple each item."""

    wrong: str
    """Message about a value beyond them: ``{} ranks cannot be``."""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: Collection[str] = ()
    pattern: str = ""
    any_float: bool = False
    """Numbers may be infinite, or none at all (NaN)."""

    def fault(self, value: Any) -> str | None:
        """Return what is wrong with a value; ``None``: nothing."""
        is_within = (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (not self.choices or value in self.choices)
            and (not self.pattern or re.fullmatch(self.pattern, value) is not None)
        )
        return None if is_within else self.wrong.format(f"{value!r:.40}")


def bounded(default: Any = dataclasses.MISSING, *, wrong: str = "", **bounds: Any) -> Any:
    """Return a dataclass field with bounds; see `Bounds`."""
    if choices := bounds.get("choices"):
        wrong = wrong or f"{{}} is not one of {', '.join(choices)}"
    known: dict[str, Any] = {"default_factory": dict} if default == {} else {"default": default}
    return dataclasses.field(**known, metadata={_BOUNDS: Bounds(wrong=wrong, **bounds)})


def document(value: Any) -> Any:
    """Return a value for JSON: objects by field name, lists, numbers, text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: document(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): document(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [document(one) for one in value]
    return value


def from_document(kind: type[T], values: Any, where: str = "") -> T:
    """Return the dataclass ``kind`` that ``document`` made ``values`` of.

    Unknown names are left out: a newer Ringleader may have written them. Raises ValueError, naming the place
    (``rdma_devices[0].name``), for the first value of another type, beyond its bounds, or missing.
    """
    found, faults = decoded(kind, values, where)
    for place, what in faults:
        raise ValueError(f"{place or 'the document'}: {what}")
    assert found is not None
    return found


def decoded(kind: type[T], values: Any, where: str = "") -> tuple[T | None, Faults]:
    """Return the dataclass ``kind`` and all that is wrong.

    ``None``: values are missing or of another type. Those that are only beyond their bounds are in it.
    """
    reader = _Reader()
    return reader.object(kind, values, where), reader.faults


@cache
def _fields(kind: Any) -> list[tuple[dataclasses.Field[Any], Any]]:
    hints = typing.get_type_hints(kind)
    return [(one, hints[one.name]) for one in dataclasses.fields(kind)]


class _Reader:
    def __init__(self) -> None:
        self.faults: Faults = []
        self._unread = 0
        """Values that are missing or of another type."""

    def _wrong(self, place: str, what: str) -> None:
        self.faults.append((place, what))
        self._unread += 1

    def _not(self, wanted: str, value: Any, place: str) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        self._wrong(place, f"{shown} is not {wanted}")

    def object(self, kind: Any, values: Any, place: str) -> Any:
        """Return a dataclass; ``None`` where a value of it cannot be read."""
        if not isinstance(values, Mapping):
            return self._not("an object", values, place)
        unread, found = self._unread, {}
        for one, hint in _fields(kind):
            inner = f"{place}.{one.name}" if place else one.name
            if one.name in values:
                found[one.name] = self._value(hint, values[one.name], inner, one.metadata.get(_BOUNDS))
            elif one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING:
                self._wrong(inner, "is missing")
        return kind(**found) if self._unread == unread else None

    def _value(self, hint: Any, value: Any, place: str, bounds: Bounds | None) -> Any:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is types.UnionType:
            if value is None and type(None) in arguments:
                return None
            hint = next(one for one in arguments if one is not type(None))
            return self._value(hint, value, place, bounds)
        if origin is tuple:
            if not isinstance(value, list | tuple):
                return self._not("a list", value, place)
            items = enumerate(value)
            return tuple([self._value(arguments[0], one, f"{place}[{at}]", bounds) for at, one in items])
        if origin is Mapping:
            if not isinstance(value, Mapping):
                return self._not("an object", value, place)
            kind, hint = arguments
            pairs = [(f"{place}.{key}", key, one) for key, one in value.items()]
            return {
                self._key(kind, key, inner): self._value(hint, one, inner, bounds)
                for inner, key, one in pairs
            }
        if dataclasses.is_dataclass(hint):
            return self.object(hint, value, place)
        found = self._plain(hint, value, place, any_float=bounds is not None and bounds.any_float)
        if found is not None and bounds is not None and (what := bounds.fault(found)):
            self.faults.append((place, what))
        return found

    def _key(self, kind: Any, key: Any, place: str) -> Any:
        """Return a key, which JSON has as text."""
        is_number = kind is int and isinstance(key, str) and re.fullmatch(r"-?[0-9]{1,30}", key)
        return int(key) if is_number else self._plain(kind, key, place)

    def _plain(self, kind: Any, value: Any, place: str, *, any_float: bool = False) -> Any:
        if issubclass(kind, StrEnum):
            words = [one.value for one in kind]
            return kind(value) if value in words else self._not(f"one of {', '.join(words)}", value, place)
        if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            if (any_float and isinstance(value, float)) or abs(value) <= sys.float_info.max:
                return float(value)
        elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        return self._not(_PLAIN[kind], value, place)
