"""Structural schemas of custom resources: pruning, defaults, validation."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.kube.fake.refusals import FieldFault, bad_value, duplicate, required, unsupported

Schema = dict[str, Any]
MISSING = object()

KNOWN = {
    "type", "description", "properties", "items", "additionalProperties", "required", "enum", "default",
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "format", "nullable",
    "title", "example", "minProperties", "maxProperties",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "x-kubernetes-embedded-resource",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
    "x-kubernetes-validations",
}  # fmt: skip
"""Words of a schema that this server obeys; a definition with any other is refused, not half obeyed."""


def nodes(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Every schema inside a schema with its path; ``*`` stands for items and values."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, (*path, name))
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from nodes(schema[word], (*path, "*"))


def unknown_words(schema: Schema) -> list[str]:
    return sorted(
        {f"{'.'.join(path)}: {word}" for path, node in nodes(schema) for word in node.keys() - KNOWN}
    )


def prune(value: Any, schema: Schema, *, is_root: bool = True, path: str = "") -> list[str]:
    """Drop what the schema does not declare; return the paths dropped."""
    dropped: list[str] = []
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        more = schema.get("additionalProperties")
        keeps = schema.get("x-kubernetes-preserve-unknown-fields") or more is True
        for name in list(value):
            here = f"{path}.{name}" if path else name
            if is_root and name in ("apiVersion", "kind", "metadata"):
                continue
            if name in properties:
                dropped += prune(value[name], properties[name], is_root=False, path=here)
            elif isinstance(more, dict):
                dropped += prune(value[name], more, is_root=False, path=here)
            elif not keeps:
                del value[name]
                dropped.append(here)
    elif isinstance(value, list) and "items" in schema:
        for place, one in enumerate(value):
            dropped += prune(one, schema["items"], is_root=False, path=f"{path}[{place}]")
    return dropped


def default(value: Any, schema: Schema) -> None:
    """Fill in defaults where a field is missing (or null where null is not allowed)."""
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            given = value.get(name, MISSING)
            if given is None and not inner.get("nullable") and "default" in inner:
                given = MISSING
            if given is MISSING and "default" in inner:
                value[name] = given = copy.deepcopy(inner["default"])
            if given is not MISSING:
                default(given, inner)
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            for name in value.keys() - schema.get("properties", {}).keys():
                default(value[name], more)
    elif isinstance(value, list) and "items" in schema:
        for one in value:
            default(one, schema["items"])


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def faults(
    value: Any, schema: Schema, path: str = "", old: Any = MISSING, *, list_maps: bool = True
) -> list[FieldFault]:
    """What is wrong with a value; what an update leaves as it was is not looked at again (ratcheting)."""
    if old is not MISSING and value == old:
        return []
    if value is None:
        return (
            [] if schema.get("nullable") else [_body(path, "null", f"must be of type {schema.get('type')}")]
        )
    wrong = _type_fault(value, schema, path)
    if wrong:
        return [wrong]
    found = list(_value_faults(value, schema, path))
    if isinstance(value, dict):
        old = old if isinstance(old, dict) else {}
        properties, more = schema.get("properties", {}), schema.get("additionalProperties")
        for name in schema.get("required", ()):
            if name not in value:
                found.append(required(_join(path, name)))
        for name, one in value.items():
            inner = properties.get(name, more if isinstance(more, dict) else None)
            if inner is not None:
                here = _join(path, name)
                found += faults(one, inner, here, old.get(name, MISSING), list_maps=list_maps)
    elif isinstance(value, list):
        for place, one in enumerate(value):
            before = old[place] if isinstance(old, list) and place < len(old) else MISSING
            here = f"{path}[{place}]"
            found += faults(one, schema.get("items", {}), here, before, list_maps=list_maps)
        if list_maps:
            found += _list_faults(value, schema, path)
    return found


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _body(path: str, value: object, words: str) -> FieldFault:
    return bad_value(path or "<nil>", value, f"{path} in body {words}")


def _type_fault(value: Any, schema: Schema, path: str) -> FieldFault | None:
    if schema.get("x-kubernetes-int-or-string"):
        fits = isinstance(value, int | str) and not isinstance(value, bool)
        return None if fits else _body(path, value, "must be of type integer or string")
    kind = schema.get("type")
    if kind is None:
        return None
    fits = isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if fits or (kind == "integer" and isinstance(value, float) and value.is_integer()):
        return None
    name = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    return bad_value(path, name[type(value)], f'{path} in body must be of type {kind}: "{name[type(value)]}"')


def _value_faults(value: Any, schema: Schema, path: str) -> Iterator[FieldFault]:
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported(path, value, schema["enum"])
    if "minimum" in schema and value < schema["minimum"]:
        yield _body(path, value, f"should be greater than or equal to {schema['minimum']}")
    if "maximum" in schema and value > schema["maximum"]:
        yield _body(path, value, f"should be less than or equal to {schema['maximum']}")
    if isinstance(value, str):
        yield from _text_faults(value, schema, path)
    if isinstance(value, int) and schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
        yield _body(path, value, f"must be of type int32: {value}")
    if isinstance(value, list) and not schema.get("minItems", 0) <= len(value) <= schema.get(
        "maxItems", 2**63
    ):
        yield _body(path, len(value), f"should have at least {schema.get('minItems', 0)} items")


def _text_faults(value: str, schema: Schema, path: str) -> Iterator[FieldFault]:
    if len(value) < schema.get("minLength", 0):
        yield _body(path, value, f"should be at least {schema['minLength']} chars long")
    if len(value) > schema.get("maxLength", 2**63):
        yield _body(path, value, f"should be at most {schema['maxLength']} chars long")
    if "pattern" in schema and not _pattern(schema["pattern"]).search(value):
        yield _body(path, value, f"should match '{schema['pattern']}'")
    if schema.get("format") == "date-time" and not _is_time(value):
        yield _body(path, value, f'must be of type date-time: "{value}"')


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _is_time(value: str) -> bool:
    try:
        return "T" in value and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _list_faults(value: list[Any], schema: Schema, path: str) -> Iterator[FieldFault]:
    seen = []
    for place, one in enumerate(value):
        if schema.get("x-kubernetes-list-type") == "map" and isinstance(one, dict):
            key = {name: one.get(name) for name in schema["x-kubernetes-list-map-keys"]}
        elif schema.get("x-kubernetes-list-type") == "set":
            key = one
        else:
            return
        if key in seen:
            yield duplicate(f"{path}[{place}]", key)
        seen.append(key)
