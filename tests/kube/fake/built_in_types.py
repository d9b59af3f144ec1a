"""A request's body as an object of its kind, by the published schemas of Kubernetes.

A wrong type is refused before anything else is looked at, an unknown field is dropped (or refused when the
client wants strictness), a null is the same as nothing.
"""

import functools
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import kubernetes_validate
import orjson
from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import bad_request
from tests.kube.fake.store import Document

VERSION = "1.36.0"
"""The Kubernetes that the server says it is, and whose schemas it decodes by."""
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_RAW = ("FieldsV1", "RawExtension", "JSONSchemaProps")
_GO = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}
Decode = Callable[[Any, str, list[str]], Any]
"""(value, path, unknown fields found so far) → the value as stored."""


class WrongTypeError(Exception):
    """A value of a type that the field cannot take, in the words of Go's decoder."""

    def __init__(self, path: str, wanted: str, found: object) -> None:
        self.path, self.wanted, self.found = path, wanted, _GO.get(type(found), "null")
        super().__init__(path)


def decoded(kind: Kind, document: Any, *, strict: bool = False) -> tuple[Document, list[str]]:
    """Return the object and what the client is to be warned of; 400 for what cannot be read."""
    if not isinstance(document, dict):
        raise bad_request("the object provided is unrecognized (must be of type Object): not a mapping")
    for field, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if document.get(field, wanted) != wanted:
            words = f"the {field} in the data ({document[field]}) does not match the expected one ({wanted})"
            raise bad_request(words)
    document.setdefault("metadata", {})
    unknown: list[str] = []
    try:
        if kind.custom is not None:
            new = {**document, "metadata": _named(_META)(document["metadata"], "metadata", unknown)}
            unknown += kind.custom.take(new)
        else:
            new = _named(_name_of(kind.api_version, kind.kind))(document, "", unknown)
    except WrongTypeError as error:
        words = f"json: cannot unmarshal {error.found} into Go struct field {kind.kind}.{error.path} of type"
        raise bad_request(unreadable(kind, f"{words} {error.wanted}"))
    words = [f'unknown field "{path}"' for path in unknown]
    if words and strict:
        raise bad_request(unreadable(kind, f"strict decoding error: {', '.join(words)}"))
    return new, words


def unreadable(kind: Kind, words: str) -> str:
    """What the server says of a body that is not of its kind."""
    return f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {words}'


@functools.cache
def _definitions() -> dict[str, Any]:
    """Every definition of the published OpenAPI document."""
    base = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    found: dict[str, Any] = orjson.loads((base / f"v{VERSION}-local" / "_definitions.json").read_bytes())
    return dict(found["$defs"])


@functools.cache
def _name_of(api_version: str, kind: str) -> str:
    """Name of the definition of a built-in kind."""
    group, _, version = api_version.rpartition("/")
    wanted = {"group": group, "version": version, "kind": kind}
    known = _definitions().items()
    return next(name for name, schema in known if wanted in schema.get("x-kubernetes-group-version-kind", ()))


@functools.cache
def _named(name: str) -> Decode:
    if name.endswith(_RAW):
        return _anything
    if name.endswith("resource.Quantity"):
        return _quantity
    if name.endswith("intstr.IntOrString"):
        return _plain((int, str), "intstr.IntOrString")
    return _decoder(_definitions()[name])


def _decoder(schema: dict[str, Any]) -> Decode:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        # Definitions may hold themselves: look each up when it is first used.
        return lambda value, path, unknown: _named(name)(value, path, unknown)
    kind = schema.get("type")
    kind = next((one for one in kind if one != "null"), None) if isinstance(kind, list) else kind
    more = schema.get("additionalProperties")
    if kind == "object" and "properties" in schema:
        return _object(schema)
    if kind == "object" and isinstance(more, dict):
        return _map(_decoder(more))
    if kind == "array":
        return _array(_decoder(schema["items"]))
    if kind == "string":
        return _time if schema.get("format") == "date-time" else _plain(str, "string")
    if kind == "boolean":
        return _plain(bool, "bool")
    if kind == "integer":
        return _plain(int, schema.get("format", "int64"))
    return _plain((int, float), "float64") if kind == "number" else _anything


def _anything(value: Any, path: str, unknown: list[str]) -> Any:
    return value


def _plain(wanted: Any, word: str) -> Decode:
    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, wanted) or (value.__class__ is bool and wanted is not bool):
            raise WrongTypeError(path, word, value)
        return value

    return decode


def _time(value: Any, path: str, unknown: list[str]) -> Any:
    try:
        datetime.fromisoformat(value)
    except (ValueError, TypeError):
        raise WrongTypeError(path, "time", value)
    return value


_QUANTITY = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?$")


def _quantity(value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise WrongTypeError(path, "resource.Quantity", value)
    if not _QUANTITY.match(str(value)):
        raise WrongTypeError(path, "resource.Quantity (quantities must match the regular expression)", value)
    return str(value)


def _object(schema: dict[str, Any]) -> Decode:
    fields = {name: _decoder(inner) for name, inner in schema["properties"].items()}

    def decode(value: Any, path: str, unknown: list[str]) -> Any:
        if value.__class__ is not dict:
            raise WrongTypeError(path, "object", value)
        found = {}
        for name, inner in value.items():
            here = f"{path}.{name}" if path else name
            if inner is not None and name in fields:
                found[name] = fields[name](inner, here, unknown)
            elif inner is not None:
                unknown.append(here)
        return found

    return decode


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
