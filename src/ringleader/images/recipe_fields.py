"""What blocks' arguments may look like: a pattern for each sort of text, so that none leaves its place. Pure.

A newline would end an instruction of a Dockerfile, whatever the quotes around it: no sort of text has one.
Paths have no character that a shell, Docker's COPY or Apptainer's %files would take for anything but itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True, kw_only=True)
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


def _sort(what: str, pattern: str, example: str) -> Sort:
    return Sort(what=what, regex=pattern, example=example)


VERSION = _sort("a version", r"[0-9][0-9A-Za-z.+~:-]*", "2.8.0")
NAME = _sort("a name", r"[a-z_][a-z0-9_-]{0,31}", "trainer")
VARIANT = _sort("a variant", r"[a-z0-9]+", "cu128")
APT = _sort("a Debian package", r"[a-z0-9][a-z0-9.+-]*(:[a-z0-9]+)?(=[0-9A-Za-z.+~:-]+)?", "perftest=4.5-1")
REQUIREMENT = _sort(
    "a requirement of pip",
    r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?((==|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!-]+(,(==|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!-]+)*)?",
    "scikit-learn>=1.5,<2",
)
_LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
_IN_PATH = r"[\w.+@,:=~/ -]"
CONTEXT_PATH = _sort(
    "a path below the recipe, without quotes and signs that have a meaning elsewhere",
    rf"(?![-/~ ])(?!(.*/)?\.\.?(/|$)){_IN_PATH}+(?<! )",
    "wheels/x.whl",
)
PATH = _sort(
    "an absolute path, without quotes and signs that have a meaning elsewhere",
    rf"/(?!(.*/)?\.\.(/|$)){_IN_PATH}*(?<! )",
    "/opt/train",
)
URL = _sort(
    "an http or https URL",
    r"https?://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~%/+-]*)?",
    "https://pypi.org/simple",
)
MODE = _sort("an octal mode", r"0?[0-7]{3}", "0755")
SHA256 = _sort("a SHA-256 in hexadecimal", r"[0-9a-f]{64}", "0123456789abcdef" * 4)
LINE = _sort("one line of text", rf"{_LINE}*", "Digits for everybody")
TEXT = _sort(
    "one line of text, without blanks at its ends", rf"(?!\s){_LINE}*(?<!\s)", "Digits for everybody"
)
VARIABLE = _sort("a variable's name", r"[A-Za-z_][A-Za-z0-9_]*", "OMP_NUM_THREADS")
LABEL = _sort("a label's name", r"[a-z0-9]+([./_-][a-z0-9]+)*", "org.opencontainers.image.version")
IMAGE_NAME = _sort("an image's name", r"[a-z0-9]+([.-][a-z0-9]+)*", "digits-torch")
GPU = _sort("a GPU's name", r"[a-z0-9][a-z0-9_.-]*", "h100")
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?"
_REPOSITORY = r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
REGISTRY = _sort(
    "a registry, with a path where it needs one", rf"{_HOST}(/{_REPOSITORY})*", "registry.example.org/proxy"
)
REFERENCE = _sort(
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
