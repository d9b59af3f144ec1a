"""Label and field selectors as the API writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import bad_request

Test = Callable[[Mapping[str, str]], bool]

_SET = re.compile(r"^(?P<key>[^\s!=,()]+)\s+(?P<word>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^\s!=,()]+)\s*(?P<word>==|=|!=)\s*(?P<value>[^\s!=,()]*)$")
_NAME = re.compile(r"^!?\s*[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$")


def _parts(text: str) -> list[str]:
    """Requirements at commas that stand outside of parentheses."""
    found = [one.strip() for one in re.split(r",(?![^(]*\))", text)]
    return [one for one in found if one]


def labels(text: str) -> Test:
    """Return the test that a label selector stands for."""
    tests = [_label(one) for one in _parts(text)]
    return lambda found: all(test(found) for test in tests)


def _label(part: str) -> Test:
    if match := _SET.match(part):
        key, values = match["key"], {one.strip() for one in match["values"].split(",")}
        is_in = match["word"] == "in"
        return lambda found: (found.get(key) in values) is is_in
    if match := _EQUAL.match(part):
        key, value, is_equal = match["key"], match["value"], match["word"] != "!="
        return lambda found: (found.get(key) == value) is is_equal
    if not _NAME.match(part):
        raise bad_request(f"unable to parse requirement: {part!r} is not a label selector requirement")
    absent = part[1:].strip()
    return (lambda found: absent not in found) if part.startswith("!") else (lambda found: part in found)


def fields(text: str, kind: Kind) -> list[tuple[str, bool, str]]:
    """Return requirements of a field selector: (path, must be equal, value)."""
    found = []
    for part in _parts(text):
        match = _EQUAL.match(part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        path = match["key"]
        if path not in ("metadata.name", "metadata.namespace", *kind.fields):
            raise bad_request(f'field label not supported: "{path}"')
        found.append((path, match["word"] != "!=", match["value"]))
    return found


def field_value(document: Mapping[str, Any], path: str) -> str:
    """The value of a field as field selectors compare it: empty where it is missing."""
    value: Any = document
    for word in path.split("."):
        value = value.get(word) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def matches_labels(selector: Mapping[str, Any] | None, found: Mapping[str, str]) -> bool:
    """Whether labels fit a LabelSelector of a document; ``None`` selects nothing."""
    if selector is None:
        return False
    if any(found.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for one in selector.get("matchExpressions") or ():
        value, word = found.get(one["key"]), one["operator"]
        fits = {
            "In": value in (one.get("values") or ()),
            "NotIn": value not in (one.get("values") or ()),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[word]
        if not fits:
            return False
    return True
