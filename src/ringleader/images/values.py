"""One key's value in a recipe: its type, its sort and its limits, by the field's metadata. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field
from typing import Any

from ringleader.images.recipe_fields import Sort

TYPES = {
    "str": 'text in quotes: "…"',
    "bool": "true or false",
    "int": "a whole number",
    "tuple[str, ...]": 'a list of texts: ["…", "…"]',
    "tuple[tuple[str, str], ...]": 'a table of texts: { NAME = "…" }',
}
"""Type of a field → what a recipe writes there."""


class UnfitError(Exception):
    """A value that does not fit; ``args`` are what is wrong and what to do."""

    def __init__(self, what: str, hint: str = "", key: str = "") -> None:
        """Keep the key of a table in which it is, where the value is one."""
        super().__init__(what, hint)
        self.what, self.hint, self.key = what, hint, key


def is_needed(field: Field[Any]) -> bool:
    """Tell whether a recipe must give the field."""
    return field.default is MISSING and field.default_factory is MISSING


def value_of(field: Field[Any], found: Any) -> Any:
    """Return a field's value from what TOML has there; UnfitError where it is none."""
    kind = str(field.type)
    if kind == "str":
        return _text(field, found)
    if kind == "bool" and isinstance(found, bool):
        return found
    if kind == "int" and isinstance(found, int) and not isinstance(found, bool):
        return _number(field, found)
    if kind == "tuple[str, ...]" and isinstance(found, list):
        return tuple(_text(field, one) for one in found)
    if kind == "tuple[tuple[str, str], ...]" and isinstance(found, dict):
        return tuple(_pairs(field, found))
    raise UnfitError(f"{shown(found)} is not {TYPES[kind]}")


def typed(field: Field[Any], word: str) -> Any:
    """Return what TOML would have for a word of the command line: ``--set block.key=WORD``."""
    kind = str(field.type)
    if kind == "bool" and word in ("true", "false"):
        return word == "true"
    if kind == "int" and word.isascii() and word.isdigit() and len(word) < 20:
        return int(word)
    if kind == "tuple[str, ...]":
        return [part.strip() for part in word.split(",") if part.strip()]
    return word


def shown(found: Any) -> str:
    """Return a value as a message shows it: on one line, shortened."""
    if isinstance(found, bool):
        return str(found).lower()
    text = repr(found) if isinstance(found, str) else str(found)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _number(field: Field[Any], found: int) -> int:
    least, most = field.metadata["least"], field.metadata["most"]
    if not least <= found <= most:
        raise UnfitError(f"{found} is not from {least} to {most}")
    return found


def _text(field: Field[Any], found: Any) -> str:
    sort: Sort = field.metadata["sort"]
    if not isinstance(found, str):
        hint = f'write "{found}"' if isinstance(found, int | float) and not isinstance(found, bool) else ""
        raise UnfitError(f"{shown(found)} is not {TYPES['str']}", hint)
    if found == "" and field.default == "":
        return found
    _fits(sort, found)
    one_of: tuple[str, ...] = field.metadata.get("one_of", ())
    if one_of and found not in one_of:
        raise UnfitError(f"{shown(found)} is not one of {', '.join(one_of)}")
    return found


def _pairs(field: Field[Any], found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, one in found.items():
        try:
            _fits(field.metadata["names"], name)
            if not isinstance(one, str):
                hint = 'a name with dots stands in quotes: "a.b" = "…"' if isinstance(one, dict) else ""
                raise UnfitError(f"{shown(one)} is not {TYPES['str']}", hint)
            _fits(field.metadata["sort"], one)
        except UnfitError as fault:
            raise UnfitError(fault.what, fault.hint, name) from None
        yield name, one


def _fits(sort: Sort, found: str) -> None:
    if sort.pattern.fullmatch(found) is None:
        raise UnfitError(f"{shown(found)} is not {sort.what}", f'such as "{sort.example}"')
