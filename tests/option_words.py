"""Words for options, as a command line has them, become an object of options without any command line."""

from collections.abc import Iterator
from typing import Any, TypeVar

from ringleader.cli.typed_command import options_of
from ringleader.errors import Fault
from ringleader.option_fields import Part, WrongValueError, parts

Options = TypeVar("Options")


def options_from(kind: type[Options], **words: Any) -> Options:
    """Read words by the names of their parameters; texts as fields declare them, other values as they are."""
    known = {part.parameter: part for part in _every(kind)}
    assert words.keys() <= known.keys(), words.keys() - known.keys()
    faults: list[Fault] = []
    values = {name: _read(known[name], word, faults) for name, word in words.items()}
    return options_of(kind, values, faults=tuple(faults))


def _read(part: Part, word: Any, faults: list[Fault]) -> Any:
    try:
        if isinstance(word, tuple) and part.parameter != "command":
            return tuple(part.read(one) for one in word)
        return part.read(word) if isinstance(word, str) else word
    except WrongValueError as wrong:
        faults.append(wrong.fault(part.spelling))
        return None


def _every(kind: type) -> Iterator[Part]:
    for part in parts(kind):
        if part.kind is not None:
            yield from _every(part.kind)
        elif part.declared is not None:
            yield part
