"""Server-side apply: what a manager applied is its own, what it no longer applies goes."""

from __future__ import annotations

import copy
from typing import Any

import orjson
from tests.kube.fake.kind_schemas import Shape, shape_of
from tests.kube.fake.kinds import Kind
from tests.kube.fake.metadata import timestamp
from tests.kube.fake.objects import Objects
from tests.kube.fake.options import WriteOptions
from tests.kube.fake.refusals import Refusal, bad_request
from tests.kube.fake.route import Route
from tests.kube.fake.store import Document

Path = tuple[Any, ...]
"""Names of fields; items of a list by their keys, as a tuple of pairs."""
_SKIPPED = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}


def apply(objects: Objects, found: Route, document: Any, options: WriteOptions) -> tuple[bytes, int]:
    """Make the object (201), or merge what changed since this manager's last apply (200)."""
    kind, name = found.kind, found.name
    entry = objects.store.collection(kind).entries.get((found.namespace, name))
    if not objects.features.apply_patch:
        raise Refusal(415, "UnsupportedMediaType", "apply patches are switched off")
    if not isinstance(document, dict):
        raise bad_request("error decoding YAML: not a mapping")
    if not options.manager:
        raise bad_request("fieldManager is required for apply patch")
    metadata = document.setdefault("metadata", {})
    metadata.setdefault("name", name)
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    shape = shape_of(kind.api_version, kind.kind) if kind.custom is None else Shape(kind.custom.schema)
    mine = leaves(document, shape)
    if entry is None:
        document["metadata"] = {**metadata, "managedFields": [_managed(objects, kind, options, mine)]}
        return objects.create(kind, found.namespace, document, options), 201
    old = entry.document()
    managers = old["metadata"].get("managedFields") or []
    before = _owned(managers, options.manager)
    _check_conflicts(objects, kind, name, old, document, managers, options, mine)
    new = _merged(copy.deepcopy(old), document, shape)
    others: set[Path] = set().union(*(_paths(one) for one in managers if one["manager"] != options.manager))
    for path in sorted(before - set(mine), key=len, reverse=True):
        if path not in others:
            _drop(new, path)
    kept = []
    for one in managers:
        if one["manager"] == options.manager:
            continue
        left = _paths(one) - set(mine) if options.force else _paths(one)
        if left:
            kept.append({**one, "fieldsV1": _tree(left)})
    unchanged = before == set(mine)
    present = next((one for one in managers if one["manager"] == options.manager), None)
    own = present if unchanged and present else _managed(objects, kind, options, mine)
    new["metadata"]["managedFields"] = [*kept, own]
    new["metadata"]["resourceVersion"] = metadata.get("resourceVersion", "")
    encoded = objects.update(kind, entry, new, options, subresource=found.subresource, is_patch=True)
    return encoded, 200


def leaves(value: Any, shape: Shape | None, path: Path = ()) -> dict[Path, Any]:
    """Every field of a document that has no fields of its own, and its value."""
    if isinstance(value, dict) and value and not (shape and shape.is_atomic):
        found: dict[Path, Any] = {}
        for name, inner in value.items():
            if (*path, name) not in _SKIPPED:
                found |= leaves(inner, shape.field(name) if shape else None, (*path, name))
        return found
    if isinstance(value, list) and shape is not None and (shape.list_keys or shape.is_set):
        found = {}
        for one in value:
            if shape.is_set:
                found[*path, ("=", one)] = one
            else:
                key = tuple((word, one.get(word)) for word in shape.list_keys)
                found |= leaves(one, shape.item, (*path, key))
        return found
    return {path: value}


def _check_conflicts(
    objects: Objects,
    kind: Kind,
    name: str,
    old: Document,
    document: Document,
    managers: list[Document],
    options: WriteOptions,
    mine: dict[Path, Any],
) -> None:
    if options.force or not objects.features.apply_conflicts:
        return
    causes = []
    for one in managers:
        if one["manager"] == options.manager:
            continue
        for path in _paths(one) & mine.keys():
            if _value(old, path) != mine[path]:
                field = _dotted(path)
                message = f'conflict with "{one["manager"]}" using {one.get("apiVersion")}'
                causes.append({"reason": "FieldManagerConflict", "message": message, "field": field})
    if causes:
        listed = "\n- ".join(f"{one['field']}" for one in causes)
        words = f"Apply failed with {len(causes)} conflict{'s' * (len(causes) > 1)}: {causes[0]['message']}"
        raise Refusal(409, "Conflict", f"{words}: {listed}", details={"causes": causes})


def _merged(target: Any, patch: Any, shape: Shape | None) -> Any:
    if isinstance(patch, dict) and not (shape and shape.is_atomic):
        found = dict(target) if isinstance(target, dict) else {}
        for name, value in patch.items():
            found[name] = _merged(found.get(name), value, shape.field(name) if shape else None)
        return found
    if isinstance(patch, list) and shape is not None and shape.is_set:
        kept = list(target or [])
        return kept + [one for one in patch if one not in kept]
    if isinstance(patch, list) and shape is not None and shape.list_keys:
        items = list(target or [])
        for one in patch:
            key = [one.get(word) for word in shape.list_keys]
            place = next(
                (i for i, item in enumerate(items) if [item.get(word) for word in shape.list_keys] == key),
                None,
            )
            if place is None:
                items.append(one)
            else:
                items[place] = _merged(items[place], one, shape.item)
        return items
    return patch


def _find(items: list[Any], key: Path) -> int | None:
    if key and key[0] == "=":
        return next((place for place, one in enumerate(items) if one == key[1]), None)
    return next(
        (place for place, one in enumerate(items) if all(one.get(word) == value for word, value in key)), None
    )


def _value(document: Any, path: Path) -> Any:
    for word in path:
        if isinstance(word, tuple):
            place = _find(document, word) if isinstance(document, list) else None
            document = document[place] if place is not None else None
        else:
            document = document.get(word) if isinstance(document, dict) else None
    return document


def _drop(document: Any, path: Path) -> None:
    """Take a field out, and what it leaves empty."""
    parent = _value(document, path[:-1])
    last = path[-1]
    if isinstance(parent, list):
        place = _find(parent, last)
        if place is not None:
            del parent[place]
    elif isinstance(parent, dict):
        parent.pop(last, None)
    if (len(path) > 1 and parent in ({}, [])) or (len(path) > 1 and _is_bare(parent, path[-2])):
        _drop(document, path[:-1])


def _is_bare(item: Any, step: Any) -> bool:
    """Whether nothing is left of an item of a list but the keys that it is known by."""
    if not isinstance(item, dict) or not isinstance(step, tuple) or step[:1] == ("=",):
        return False
    return item.keys() <= {word for word, _ in step}


def _managed(objects: Objects, kind: Kind, options: WriteOptions, mine: dict[Path, Any]) -> Document:
    return {
        "manager": options.manager,
        "operation": "Apply",
        "apiVersion": kind.api_version,
        "time": timestamp(objects.now()),
        "fieldsType": "FieldsV1",
        "fieldsV1": _tree(set(mine)),
    }


def _tree(paths: set[Path]) -> Document:
    found: Document = {}
    for path in sorted(paths, key=str):
        inner = found
        for word in path:
            if isinstance(word, tuple):
                is_value = bool(word) and word[0] == "="
                name = (b"v:" + orjson.dumps(word[1])) if is_value else (b"k:" + orjson.dumps(dict(word)))
                inner = inner.setdefault(name.decode(), {})
            else:
                inner = inner.setdefault(f"f:{word}", {})
    return found


def _owned(managers: list[Document], manager: str) -> set[Path]:
    return next((_paths(one) for one in managers if one["manager"] == manager), set())


def _paths(managed: Document) -> set[Path]:
    def walk(node: Document, path: Path) -> set[Path]:
        if not node:
            return {path}
        found = set()
        for name, inner in node.items():
            word, _, rest = name.partition(":")
            step: Any = rest
            if word == "k":
                step = tuple(orjson.loads(rest).items())
            elif word == "v":
                step = ("=", orjson.loads(rest))
            found |= walk(inner, (*path, step))
        return found

    return walk(managed.get("fieldsV1") or {}, ())


def _dotted(path: Path) -> str:
    words = [
        f"[{','.join(f'{k}={v!r}' for k, v in one)}]"
        if isinstance(one, tuple) and one[0] != "="
        else f".{one}"
        for one in path
    ]
    return "".join(words)
