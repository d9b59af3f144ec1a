"""Variables for the ranks as a user writes them: ``-x NAME=VALUE`` and files of such lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ringleader.errors import Fault
from ringleader.render.rank_environment import RESERVED
from ringleader.value_class import dataclass

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$", "`": "`"}


@dataclass(frozen=True, kw_only=True)
class Variables:
    """What was read, in order, and everything that is wrong with it."""

    values: tuple[tuple[str, str], ...] = ()
    faults: tuple[Fault, ...] = ()


class _BadLineError(Exception):
    """A line that sets no variable: what is wrong, and what to write instead."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


def parse_assignments(words: tuple[str, ...], environ: Mapping[str, str], where: str = "-x") -> Variables:
    """Read the values of ``-x``: ``NAME=VALUE`` as it is, ``NAME`` with the caller's value."""
    values: list[tuple[str, str]] = []
    faults: list[Fault] = []
    for word in words:
        name, equals, value = word.partition("=")
        try:
            _check_name(name)
            values.append((name, value if equals else _callers(name, environ)))
        except _BadLineError as bad:
            faults.append(Fault(where=f"{where} {name[:80]}", what=bad.what, hint=bad.hint))
    return Variables(values=tuple(values), faults=tuple(faults))


def parse_env_file(text: str, environ: Mapping[str, str], where: str) -> Variables:
    """Read a file of ``NAME=VALUE`` lines; ``where`` is its name.

    ``NAME`` alone takes the caller's value, ``export`` in front is passed over, ``#`` at the start of a line
    or after a space begins a comment. A value in single quotes is literal; in double quotes ``\\n``, ``\\t``,
    ``\\"``, ``\\\\`` and ``\\$`` are escapes. Nothing is expanded: ``$HOME`` stays ``$HOME``.
    """
    values: list[tuple[str, str]] = []
    faults: list[Fault] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        content = line.strip().removeprefix("export ").lstrip()
        if not content or content.startswith("#"):
            continue
        try:
            values.append(_variable(content, environ))
        except _BadLineError as bad:
            faults.append(Fault(where=f"{where}:{number}", what=bad.what, hint=bad.hint))
    return Variables(values=tuple(values), faults=tuple(faults))


def _variable(content: str, environ: Mapping[str, str]) -> tuple[str, str]:
    name, equals, rest = content.partition("=")
    if not equals:
        name = _without_comment(content)
        _check_name(name)
        return name, _callers(name, environ)
    _check_name(name)
    return name, _value(rest.strip())


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise _BadLineError(
            f"{name[:80]!r} is no name of a variable", "write NAME=VALUE, or NAME to pass yours on"
        )
    if name in RESERVED:
        raise _BadLineError(f"{name} follows from a rank's place and cannot be set", "leave it out")


def _callers(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise _BadLineError(f"{name} is not set here", f"set it, or write {name}=VALUE")
    return environ[name]


def _value(text: str) -> str:
    """Read what stands after ``=``."""
    if "\0" in text:
        raise _BadLineError("a NUL byte, which no variable can hold")
    quote = text[:1]
    if quote not in ("'", '"'):
        return _without_comment(text)
    value: list[str] = []
    letters = iter(enumerate(text[1:], start=1))
    for index, letter in letters:
        if letter == quote:
            if _without_comment(text[index + 1 :]):
                raise _BadLineError(
                    f"{text[index + 1 :]!r} follows the closing quote", "quote the whole value"
                )
            return "".join(value)
        if letter == "\\" and quote == '"':
            _, escaped = next(letters, (0, ""))
            value.append(_ESCAPES.get(escaped, "\\" + escaped))
        else:
            value.append(letter)
    raise _BadLineError(f"the quote {quote} is not closed on this line")


def _without_comment(text: str) -> str:
    return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()
