"""Label and field selectors as the API writes them."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import bad_request

Test = Callable[[Mapping[str, str]], bool]

_EQUAL = re.compile(r"^(?P<key>[^\s!=,()]+)\s*==?\s*(?P<value>[^\s!=,()]*)$")


def labels(text: str) -> Test:
    """Return the test that a label selector stands for: labels and values, as the product asks for."""
    wanted = {}
    for part in filter(None, text.split(",")):
        match = _EQUAL.match(part.strip())
        if match is None:
            raise bad_request(f"unable to parse requirement: {part!r} is not supported here")
        wanted[match["key"]] = match["value"]
    return lambda found: wanted.items() <= found.items()


def fields(text: str, kind: Kind) -> list[tuple[str, str]]:
    """Return requirements of a field selector: path and value."""
    found = []
    for part in filter(None, text.split(",")):
        match = _EQUAL.match(part.strip())
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        path = match["key"]
        if path not in ("metadata.name", "metadata.namespace", *kind.fields):
            raise bad_request(f'field label not supported: "{path}"')
        found.append((path, match["value"]))
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
