"""Merge patch (RFC 7396), JSON patch (RFC 6902) and strategic merge patch."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tests.kube.fake.kind_schemas import Shape
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
    """Apply a JSON patch to a document of the caller's own."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    for one in operations:
        target = _operation(target, one)
    return target


def _operation(target: Any, one: Mapping[str, Any]) -> Any:
    word, path = one.get("op"), _pointer(one.get("path", ""))
    if word in ("move", "copy"):
        source = _pointer(one.get("from", ""))
        value = copy.deepcopy(_at(target, source))
        if word == "move":
            _remove(target, source)
        return _add(target, path, value)
    if word == "test":
        if _at(target, path, default=None) != one.get("value"):
            raise _refused(f"testing value {one.get('path')} failed")
        return target
    if word == "add":
        return _add(target, path, one.get("value"))
    if word == "remove":
        _remove(target, path)
        return target
    if word == "replace":
        _at(target, path)
        if path and isinstance(_at(target, path[:-1]), list):
            _at(target, path[:-1])[int(path[-1])] = one.get("value")
            return target
        return _add(target, path, one.get("value"))
    raise bad_request(f"Unexpected kind: {word}")


def _refused(words: str) -> Refusal:
    return Refusal(422, "Invalid", f"the server rejected our request due to an error in our request: {words}")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise _refused(f"path {text!r} does not begin with /")
    return [word.replace("~1", "/").replace("~0", "~") for word in text.split("/")[1:]]


_RAISE = object()


def _at(target: Any, path: Sequence[str], default: Any = _RAISE) -> Any:
    try:
        for word in path:
            target = target[int(word)] if isinstance(target, list) else target[word]
    except (KeyError, IndexError, ValueError, TypeError):
        if default is _RAISE:
            raise _refused(f"doc is missing path: /{'/'.join(path)}: missing value")
        return default
    return target


def _add(target: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _at(target, path[:-1]), path[-1]
    if isinstance(parent, list):
        if last != "-" and not (last.isdigit() and int(last) <= len(parent)):
            raise _refused(f"index {last} is out of bounds")
        parent.insert(len(parent) if last == "-" else int(last), value)
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise _refused(f"path /{'/'.join(path)} leads through a value")
    return target


def _remove(target: Any, path: Sequence[str]) -> None:
    _at(target, path)
    parent = _at(target, path[:-1])
    if isinstance(parent, list):
        del parent[int(path[-1])]
    else:
        del parent[path[-1]]


def strategic(target: Any, patch: Any, shape: Shape | None) -> Any:
    """Apply a strategic merge patch: lists with a merge key are merged item by item."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key == "$retainKeys":
            found = {name: one for name, one in found.items() if name in value}
        elif key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            found[name] = [one for one in found.get(name) or [] if one not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            found.pop(key, None)
        else:
            inner = shape.field(key) if shape else None
            found[key] = _strategic_value(found.get(key), value, inner)
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            _reorder(found, key.partition("/")[2], order, shape)
    return found


def _strategic_value(target: Any, value: Any, shape: Shape | None) -> Any:
    if isinstance(value, dict):
        return strategic(target, value, shape)
    if not isinstance(value, list) or shape is None or not shape.is_merged:
        return value
    if not shape.merge_key:
        kept = list(target or [])
        return kept + [one for one in value if one not in kept]
    return _merge_list(list(target or []), value, shape)


def _merge_list(found: list[Any], patch: list[Any], shape: Shape) -> list[Any]:
    key = shape.merge_key
    if any(one.get("$patch") == "replace" for one in patch):
        return [one for one in patch if "$patch" not in one]
    for one in patch:
        place = next((i for i, other in enumerate(found) if other.get(key) == one.get(key)), None)
        if one.get("$patch") == "delete":
            if place is not None:
                del found[place]
        elif place is None:
            found.append(strategic({}, one, shape.item))
        else:
            found[place] = strategic(found[place], one, shape.item)
    return found


def _reorder(found: dict[str, Any], name: str, order: list[Any], shape: Shape | None) -> None:
    inner = shape.field(name) if shape else None
    key = inner.merge_key if inner else ""
    places = {one[key] if isinstance(one, dict) else one: place for place, one in enumerate(order)}
    items = found.get(name) or []
    # What the patch does not name keeps its place after what it names.
    items.sort(key=lambda one: places.get(one.get(key) if isinstance(one, dict) else one, len(places)))
