"""YAML files become documents with the line of every value, and documents become YAML.

Words are understood as ``kubectl`` understands them (YAML 1.1 as Go programs read it): ``yes``, ``on`` and
``y`` are true, ``010`` is eight, ``1:30`` and dates are text. Needs PyYAML (the extra ``kubernetes``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from ringleader.errors import Fault, RequestError
from ringleader.kubernetes.mpijob.document_faults import SourceLines

_PREFIX = "tag:yaml.org,2002:"
_TRUE = ("y", "yes", "true", "on")
_FALSE = ("n", "no", "false", "off")
_WORDS = {form for word in (*_TRUE, *_FALSE) for form in (word, word.capitalize(), word.upper())}
_BOOL = re.compile(f"({'|'.join(sorted(_WORDS))})\\Z")
_INT = re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?\Z")
_NULL = re.compile(r"(~|null|Null|NULL|)\Z")
_MERGE = re.compile(r"<<\Z")
_ODD_BREAK = re.compile("[\r\x85\u2028\u2029]")
"""Characters that some readers of YAML take for the end of a line: text with them is escaped."""
_DEEPEST = 100
_LARGEST = 200_000
"""Values in a document once its aliases are spelt out; more is an attack or a mistake."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """One document of a file."""

    value: Any
    """JSON: maps, lists, text, numbers, true, false, null."""
    places: SourceLines


class _Words:
    """Which plain words are not text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own name


for _tag, _pattern, _first in (
    ("bool", _BOOL, "yYnNtTfFoO"),
    ("int", _INT, "-+0123456789"),
    ("float", _FLOAT, "-+0123456789."),
    ("null", _NULL, "~nN\0"),
    ("merge", _MERGE, "<"),
):
    for _letter in _first:
        _key = "" if _letter == "\0" else _letter
        _Words.yaml_implicit_resolvers.setdefault(_key, []).append((_PREFIX + _tag, _pattern))


class _Loader(_Words, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads nodes; values are made of them here, with their lines."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes maps in the order they have, long text without folding, text of several lines as a block.

    Text is quoted where any reader of YAML 1.1 could take it for something else.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own name
        first: [*_Words.yaml_implicit_resolvers.get(first, []), *known]
        for first, known in {
            **dict.fromkeys(_Words.yaml_implicit_resolvers, ()),
            **yaml.SafeDumper.yaml_implicit_resolvers,
        }.items()
    }

    def ignore_aliases(self, data: object) -> bool:
        """Spell out what occurs twice: many readers do not know anchors."""
        return True


def _text_node(dumper: _Dumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    if _ODD_BREAK.search(text):
        style = '"'
    return dumper.represent_scalar(_PREFIX + "str", text, style=style)


_Dumper.add_representer(str, _text_node)


def documents(text: str, source: str) -> tuple[Document, ...]:
    """Read every document of a YAML (or JSON) file; empty ones are passed over.

    ``source`` is the file's name, used in ``file:line``. Raises RequestError with all that is not YAML.
    """
    faults: list[Fault] = []
    found: list[Document] = []
    text = text.removeprefix("\ufeff")
    loader = _Loader(text)
    try:
        _check_depth(text)
        while loader.check_node():
            node = loader.get_node()
            lines: dict[tuple[str | int, ...], int] = {}
            value = _Values(source, lines, faults).value(node, ())
            if value is not None:
                found.append(Document(value=value, places=SourceLines(source=source, lines=lines)))
    except yaml.MarkedYAMLError as error:
        faults.append(_not_yaml(error, source))
    except yaml.YAMLError as error:
        faults.append(Fault(where=source, what=f"is not YAML: {' '.join(str(error).split())}"))
    finally:
        loader.dispose()
    if faults:
        raise RequestError(faults)
    return tuple(found)


def text_of(values: Iterable[object]) -> str:
    """Return documents as one YAML text."""
    text: str = yaml.dump_all(
        values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31, default_flow_style=False
    )
    return text


def _check_depth(text: str) -> None:
    """Raise YAMLError where a text is nested so deeply that libyaml's composer would overflow its stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=event.start_mark)


def _not_yaml(error: yaml.MarkedYAMLError, source: str) -> Fault:
    mark = error.problem_mark or error.context_mark
    place = source if mark is None else f"{source}:{mark.line + 1}"
    column = "" if mark is None else f" (column {mark.column + 1})"
    hint = "indent with spaces, not tabs" if "\\t" in str(error.problem) else ""
    return Fault(where=place, what=f"is not YAML: {error.problem or error.context}{column}", hint=hint)


class _Values:
    """Makes JSON of one document's nodes and notes the line of each value."""

    def __init__(self, source: str, lines: dict[tuple[str | int, ...], int], faults: list[Fault]) -> None:
        self._source, self._lines, self._faults = source, lines, faults
        self._open: list[int] = []
        self._count = 0

    def value(self, node: yaml.Node, keys: tuple[str | int, ...]) -> Any:
        """Return the JSON value of a node."""
        self._lines.setdefault(keys, node.start_mark.line + 1)
        self._count += 1
        bad = "an alias that holds itself" if id(node) in self._open else None
        if bad is not None or self._count > _LARGEST:
            if bad is not None or self._count == _LARGEST + 1:
                self._fault(node, bad or f"more than {_LARGEST} values")
            return None
        self._open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._map(node, keys)
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*keys, index)) for index, item in enumerate(node.value)]
            return self._scalar(node)
        finally:
            self._open.pop()

    def _map(self, node: yaml.MappingNode, keys: tuple[str | int, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _PREFIX + "merge":
                merged = {**self._merged(value_node, keys), **merged}
                continue
            key = self._key(key_node)
            if key in found:
                self._fault(key_node, f"the key {key} is given twice")
            self._lines[(*keys, key)] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, (*keys, key))
        return {**merged, **found}

    def _merged(self, node: yaml.Node, keys: tuple[str | int, ...]) -> dict[str, Any]:
        """Return what ``<<`` brings in: a map, or several, the first of which counts most."""
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found: dict[str, Any] = {}
        for part in reversed(parts):
            if isinstance(part, yaml.MappingNode):
                found |= self.value(part, keys) or {}
            else:
                self._fault(part, "<< needs a map")
        return found

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self._fault(node, "a key must be text")
            return ""
        return str(node.value)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        kind, text = node.tag.removeprefix(_PREFIX), node.value
        if kind == "bool" and text.lower() in (*_TRUE, *_FALSE):
            return text.lower() in _TRUE
        if kind == "null":
            return None
        if kind in ("str", "timestamp", "binary"):
            return text
        try:
            return _number(text, kind)
        except ValueError:
            self._fault(node, f"{text!r} cannot be read as {node.tag}")
            return None

    def _fault(self, node: yaml.Node, what: str) -> None:
        self._faults.append(Fault(where=f"{self._source}:{node.start_mark.line + 1}", what=what))


def _number(text: str, kind: str) -> int | float:
    plain = text.replace("_", "")
    if kind == "float":
        return float(plain)
    if kind != "int":
        raise ValueError(kind)
    digits = plain.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        return int(plain, 8)
    return int(plain, 0)
