"""Merge patch (RFC 7396) and JSON patch (RFC 6902)."""

from __future__ import annotations

from typing import Any

from tests.kube.fake.refusals import Refusal, bad_request


def merge(target: Any, patch: Any) -> Any:
    """Apply a merge patch; neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merge(found.get(key), value)
    return found


def json_patch(target: Any, operations: Any) -> Any:
    """Apply a JSON patch to a document of the caller's own: test, add, remove and replace."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    for one in operations:
        words = [word.replace("~1", "/").replace("~0", "~") for word in one["path"].split("/")[1:]]
        try:
            parent = target
            for word in words[:-1]:
                parent = parent[int(word) if isinstance(parent, list) else word]
            key = int(words[-1]) if isinstance(parent, list) and words[-1] != "-" else words[-1]
            _operation(one["op"], parent, key, one.get("value"))
        except (KeyError, IndexError, ValueError, TypeError):
            raise Refusal(422, "Invalid", f"{_SAID}: {one['op']} of {one['path']}: missing value")
    return target


_SAID = "the server rejected our request due to an error in our request"


def _operation(word: str, parent: Any, key: Any, value: Any) -> None:
    if word == "test":
        if parent[key] != value:
            raise KeyError(key)
    elif word == "remove":
        del parent[key]
    elif word == "add" and isinstance(parent, list):
        parent.insert(len(parent) if key == "-" else key, value)
    elif word in ("add", "replace"):
        parent[key] = value
    else:
        raise bad_request(f"Unexpected kind: {word}")
