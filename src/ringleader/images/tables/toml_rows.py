"""How rows of ``data/*.toml`` become values: a dataclass per table, every key checked."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, Field, dataclass, fields
from importlib.resources import files
from typing import Any, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """What every row has."""

    source: str = ""
    """Where that is written; empty: nobody looked it up."""


def read(name: str) -> dict[str, list[dict[str, Any]]]:
    """Return the arrays of tables of ``data/NAME.toml``."""
    text = files(__package__).joinpath("data", f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def rows(kind: type[Row], found: list[dict[str, Any]]) -> tuple[Row, ...]:
    """Return rows as values of a dataclass; ValueError for a missing or unknown key, or a wrong type."""
    return tuple(_row(kind, one) for one in found)


def rows_by(key: str, kind: type[Row], found: list[dict[str, Any]]) -> dict[str, Row]:
    """Return rows by the value of one of their fields. ValueError as ``rows``, and for two of one value."""
    named = {str(getattr(row, key)): row for row in rows(kind, found)}
    if len(named) != len(found):
        raise ValueError(f"{kind.__name__}: two rows of one {key}")
    return named


def _row(kind: type[Row], found: dict[str, Any]) -> Row:
    known: dict[str, Field[Any]] = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for key in found:
        if key not in known:
            raise ValueError(f"{kind.__name__} {found}: unknown key {key}")
    for key, field in known.items():
        needed = field.default is MISSING and field.default_factory is MISSING
        if needed and key not in found:
            raise ValueError(f"{kind.__name__} {found}: no {key}")
    return kind(**{key: _value(known[key], value, found) for key, value in found.items()})


def _value(field: Field[Any], value: Any, found: dict[str, Any]) -> Any:
    kind = str(field.type)
    if isinstance(value, list) and kind.startswith("tuple[str"):
        if all(isinstance(one, str) for one in value):
            return tuple(value)
    elif isinstance(value, dict) and kind.startswith("tuple[tuple"):
        return tuple((key, one) for key, one in value.items())
    elif kind == type(value).__name__:
        return value
    raise ValueError(f"{found}: {field.name} is {value!r}, not {kind}")
