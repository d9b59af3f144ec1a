"""What blocks' arguments may look like: a pattern for each sort of text, so that none leaves its place. Pure.

A newline would end an instruction of a Dockerfile, whatever the quotes around it: no sort of text has one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Sort:
    """One sort of text."""

    what: str
    """For messages: ``must be a version``."""
    pattern: re.Pattern[str]
    example: str


def _sort(what: str, pattern: str, example: str) -> Sort:
    return Sort(what=what, pattern=re.compile(pattern), example=example)


VERSION = _sort("a version", r"[0-9][0-9A-Za-z.+~:-]*", "2.8.0")
NAME = _sort("a name", r"[a-z_][a-z0-9_-]{0,31}", "trainer")
VARIANT = _sort("a variant", r"[a-z0-9]+", "cu128")
APT = _sort("a Debian package", r"[a-z0-9][a-z0-9.+-]*(:[a-z0-9]+)?(=[0-9A-Za-z.+~:-]+)?", "perftest=4.5-1")
REQUIREMENT = _sort(
    "a requirement of pip",
    r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?((==|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!-]+(,(==|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!-]+)*)?",
    "scikit-learn>=1.5,<2",
)
CONTEXT_PATH = _sort("a path below the recipe", r"(?!/)(?!(.*/)?\.\.(/|$))[^\x00-\x1f\x7f]+", "wheels/x.whl")
PATH = _sort("an absolute path", r"/[^\x00-\x1f\x7f]*", "/opt/train")
URL = _sort(
    "an http or https URL", r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~%/+-]*)?", "https://pypi.org/simple"
)
MODE = _sort("an octal mode", r"0?[0-7]{3}", "0755")
LINE = _sort("a line of text", r"[^\x00-\x1f\x7f]*", "Digits for everybody")
VARIABLE = _sort("a variable's name", r"[A-Za-z_][A-Za-z0-9_]*", "OMP_NUM_THREADS")


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
