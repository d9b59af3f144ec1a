"""What values of a recipe may be: a pattern for each sort of text, so that none leaves its place. Pure.

A newline would end an instruction of a Dockerfile, whatever the quotes around it: no sort of text has one.
Paths have no character that a shell, Docker's COPY or Apptainer's %files would take for anything but itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Sort:
    """One sort of text."""

    what: str
    """For messages: ``must be a version``."""
    regex: str
    example: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What the whole of a text must match, compiled when it is first asked for."""
        return re.compile(self.regex)


VERSION = Sort("a version", r"[0-9][0-9A-Za-z.+~:-]*", "2.8.0")
NAME = Sort("a name", r"[a-z_][a-z0-9_-]{0,31}", "trainer")
VARIANT = Sort("a variant", r"[a-z0-9]+", "cu128")
APT = Sort("a Debian package", r"[a-z0-9][a-z0-9.+-]*(:[a-z0-9]+)?(=[0-9A-Za-z.+~:-]+)?", "perftest=4.5-1")
REQUIREMENT = Sort(
    "a requirement of pip",
    r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?((==|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!-]+(,(==|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!-]+)*)?",
    "scikit-learn>=1.5,<2",
)
_LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
_IN_PATH = r"[\w.+@,:=~/ -]"
CONTEXT_PATH = Sort(
    "a path below the recipe, without quotes and signs that have a meaning elsewhere",
    rf"(?![-/~ ])(?!(.*/)?\.\.?(/|$)){_IN_PATH}+(?<! )",
    "wheels/x.whl",
)
PATH = Sort(
    "an absolute path, without quotes and signs that have a meaning elsewhere",
    rf"/(?!(.*/)?\.\.(/|$)){_IN_PATH}*(?<! )",
    "/opt/train",
)
URL = Sort(
    "an http or https URL",
    r"https?://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~%/+-]*)?",
    "https://pypi.org/simple",
)
SHA256 = Sort("a SHA-256 in hexadecimal", r"[0-9a-f]{64}", "0123456789abcdef" * 4)
LINE = Sort("one line of text", rf"{_LINE}*", "Digits for everybody")
TEXT = Sort("one line of text, without blanks at its ends", rf"(?!\s){_LINE}*(?<!\s)", "Digits for everybody")
VARIABLE = Sort("a variable's name", r"[A-Za-z_][A-Za-z0-9_]*", "OMP_NUM_THREADS")
LABEL = Sort("a label's name", r"[a-z0-9]+([./_-][a-z0-9]+)*", "org.opencontainers.image.version")
IMAGE_NAME = Sort("an image's name", r"[a-z0-9]+([.-][a-z0-9]+)*", "digits-torch")
GPU = Sort("a GPU's name", r"[a-z0-9][a-z0-9_.-]*", "h100")
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?"
_REPOSITORY = r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
REGISTRY = Sort(
    "a registry, with a path where it needs one", rf"{_HOST}(/{_REPOSITORY})*", "registry.example.org/proxy"
)
REFERENCE = Sort(
    "a reference of an image",
    rf"({_HOST}/)?{_REPOSITORY}(/{_REPOSITORY})*(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?",
    "ubuntu:24.04",
)


def text(sort: Sort, default: str = "", *, one_of: tuple[str, ...] = ()) -> Any:
    """Declare an argument with one text of a sort. The default may be empty: not given."""
    return field(default=default, metadata={"sort": sort, "one_of": one_of})


def needed(sort: Sort, *, one_of: tuple[str, ...] = ()) -> Any:
    """Declare an argument that a recipe must give."""
    return field(metadata={"sort": sort, "one_of": one_of})


def texts(sort: Sort, default: tuple[str, ...] = (), *, one_of: tuple[str, ...] = ()) -> Any:
    """Declare an argument with a list of texts."""
    return field(default=default, metadata={"sort": sort, "one_of": one_of})


def number(default: int, *, least: int, most: int) -> Any:
    """Declare an argument with a whole number from ``least`` to ``most``."""
    return field(default=default, metadata={"least": least, "most": most})


def pairs(sort: Sort, names: Sort = VARIABLE) -> Any:
    """Declare an argument that is a table of names and texts, as ``tuple[tuple[str, str], ...]``."""
    return field(default=(), metadata={"sort": sort, "names": names})


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
