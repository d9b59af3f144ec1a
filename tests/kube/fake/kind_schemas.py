"""Types of the built-in kinds, from the published schemas of Kubernetes: what a server can decode.

A wrong type is refused before anything else is looked at, an unknown field is dropped (or refused when the
client asks for strictness), a null is the same as nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import kubernetes_validate
import orjson

VERSION = "1.36.0"
"""The Kubernetes that the server says it is, and whose schemas it decodes by."""
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_RAW = {"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "io.k8s.apimachinery.pkg.runtime.RawExtension"}


class WrongTypeError(Exception):
    """A value of a type that the field cannot take."""

    def __init__(self, path: str, wanted: str, found: object) -> None:
        self.path, self.wanted, self.found = path, wanted, found
        super().__init__(path)

    def go(self, kind: str) -> str:
        """The words of Go's decoder."""
        word = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}
        return (
            f"json: cannot unmarshal {word.get(type(self.found), 'null')} into Go struct field "
            f"{kind}.{self.path} of type {self.wanted}"
        )


Decode = Callable[[Any, str, list[str]], Any]
"""(value, path, unknown fields found so far) → the value as stored."""


@dataclass(frozen=True, eq=False)
class Shape:
    """The type of one field, as far as patches need it."""

    schema: dict[str, Any]

    def field(self, name: str) -> Shape | None:
        inner = self.schema.get("properties", {}).get(name)
        if inner is None:
            more = self.schema.get("additionalProperties")
            return Shape(_resolved(more)) if isinstance(more, dict) else None
        return Shape(_resolved(inner))

    @property
    def is_merged(self) -> bool:
        return "merge" in self.schema.get("x-kubernetes-patch-strategy", "")

    @property
    def merge_key(self) -> str:
        return str(self.schema.get("x-kubernetes-patch-merge-key", ""))

    @property
    def list_keys(self) -> tuple[str, ...]:
        """Keys by which server-side apply tells items of a list apart."""
        if self.schema.get("x-kubernetes-list-type") == "map":
            return tuple(self.schema.get("x-kubernetes-list-map-keys", ()))
        return ()

    @property
    def is_set(self) -> bool:
        return self.schema.get("x-kubernetes-list-type") == "set"

    @property
    def is_atomic(self) -> bool:
        return "atomic" in (
            self.schema.get("x-kubernetes-map-type"),
            self.schema.get("x-kubernetes-list-type"),
        )

    @property
    def item(self) -> Shape | None:
        inner = self.schema.get("items")
        return Shape(_resolved(inner)) if inner else None


@functools.cache
def definitions() -> dict[str, Any]:
    """Every definition of the published OpenAPI document."""
    base = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    found: dict[str, Any] = orjson.loads((base / f"v{VERSION}-local" / "_definitions.json").read_bytes())
    return dict(found["$defs"])


@functools.cache
def name_of(api_version: str, kind: str) -> str:
    """Name of the definition of a built-in kind; empty where there is none."""
    group, _, version = api_version.rpartition("/")
    wanted = {"group": group, "version": version, "kind": kind}
    for name, schema in definitions().items():
        if wanted in schema.get("x-kubernetes-group-version-kind", ()):
            return name
    return ""


def shape_of(api_version: str, kind: str) -> Shape | None:
    name = name_of(api_version, kind)
    return Shape(definitions()[name]) if name else None


def metadata_decoder() -> Decode:
    """The decoder of every object's metadata."""
    return _named(_META)


@functools.cache
def decoder(api_version: str, kind: str) -> Decode | None:
    """The decoder of a built-in kind."""
    name = name_of(api_version, kind)
    return _named(name) if name else None


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    ref = schema.get("$ref")
    return {**definitions()[ref.rpartition("/")[2]], **schema} if ref else schema


@functools.cache
def _named(name: str) -> Decode:
    if name in _RAW or name.endswith("JSONSchemaProps"):
        return _anything
    schema = definitions()[name]
    if name.endswith("resource.Quantity"):
        return _quantity
    if name.endswith("intstr.IntOrString"):
        return _int_or_string
    return _decoder(schema)


def _decoder(schema: dict[str, Any]) -> Decode:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        # Definitions may hold themselves: look each up when it is first used.
        return lambda value, path, unknown: _named(name)(value, path, unknown)
    kind = schema.get("type")
    kind = next((one for one in kind if one != "null"), None) if isinstance(kind, list) else kind
    if kind == "object":
        if "properties" in schema:
            return _object(schema)
        more = schema.get("additionalProperties")
        return _map(_decoder(more)) if isinstance(more, dict) else _anything
    if kind == "array":
        return _array(_decoder(schema["items"]))
    if kind == "string":
        return _time if schema.get("format") == "date-time" else _plain(str, "string")
    if kind == "boolean":
        return _plain(bool, "bool")
    if kind == "integer":
        return _plain(int, schema.get("format", "int64"))
    if kind == "number":
        return _plain((int, float), "float64")
    return _anything


def _anything(value: Any, path: str, unknown: list[str]) -> Any:
    return value


def _plain(wanted: Any, word: str) -> Decode:
    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, wanted) or (value.__class__ is bool and wanted is not bool):
            raise WrongTypeError(path, word, value)
        return value

    return decode


def _time(value: Any, path: str, unknown: list[str]) -> Any:
    if not isinstance(value, str):
        raise WrongTypeError(path, "time", value)
    try:
        datetime.fromisoformat(value)
    except ValueError:
        raise WrongTypeError(path, "time", value)
    return value


_QUANTITY = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?$")


def _quantity(value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise WrongTypeError(path, "resource.Quantity", value)
    if not _QUANTITY.match(str(value)):
        raise WrongTypeError(path, "resource.Quantity (quantities must match the regular expression)", value)
    return str(value)


def _int_or_string(value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise WrongTypeError(path, "intstr.IntOrString", value)
    return value


def _object(schema: dict[str, Any]) -> Decode:
    fields = {name: _decoder(inner) for name, inner in schema["properties"].items()}
    texts = {name for name, inner in schema["properties"].items() if _is_text(inner)}

    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if value.__class__ is not dict:
            raise WrongTypeError(path, "object", value)
        found = {}
        for name, inner in value.items():
            if inner is None:
                continue
            if name in texts and inner.__class__ is str:
                found[name] = inner
                continue
            field = fields.get(name)
            if field is None:
                unknown.append(f"{path}.{name}" if path else name)
                continue
            found[name] = field(inner, f"{path}.{name}" if path else name, unknown)
        return found

    return decode


def _is_text(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    return "string" in (kind if isinstance(kind, list) else [kind]) and "format" not in schema


def _map(inner: Decode) -> Decode:
    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if value.__class__ is not dict:
            raise WrongTypeError(path, "map", value)
        return {
            name: one if one is None else inner(one, f"{path}.{name}", unknown) for name, one in value.items()
        }

    return decode


def _array(inner: Decode) -> Decode:
    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if value.__class__ is not list:
            raise WrongTypeError(path, "slice", value)
        return [inner(one, f"{path}[{place}]", unknown) for place, one in enumerate(value)]

    return decode
