"""A request's body as an object of its kind, by the published schemas of Kubernetes.

A wrong type is refused before anything else is looked at, an unknown field is dropped (or refused when the
client wants strictness), a null is the same as nothing.
"""

import functools
from pathlib import Path
from typing import Any

import kubernetes_validate
import orjson
from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import bad_request
from tests.kube.fake.store import Document

VERSION = "1.36.0"
"""The Kubernetes that the server says it is, and whose schemas it decodes by."""
_META = {"$ref": "#/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
_TYPES: dict[str, Any] = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}
_GO = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}


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
            new = {**document, "metadata": _taken(document["metadata"], _META, "metadata", unknown)}
            unknown += kind.custom.take(new)
        else:
            new = _taken(document, _schema_of(kind.api_version, kind.kind), "", unknown)
    except WrongTypeError as error:
        words = f"json: cannot unmarshal {error.found} into Go struct field {kind.kind}.{error.path} of type"
        raise unreadable(kind, f"{words} {error.wanted}")
    words = [f'unknown field "{path}"' for path in unknown]
    if words and strict:
        raise unreadable(kind, f"strict decoding error: {', '.join(words)}")
    return new, words


def unreadable(kind: Kind, words: str) -> Exception:
    """What the server says of a body that is not of its kind."""
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {words}')


@functools.cache
def _definitions() -> dict[str, Any]:
    """Every definition of the published OpenAPI document."""
    base = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    return dict(orjson.loads((base / f"v{VERSION}-local" / "_definitions.json").read_bytes())["$defs"])


@functools.cache
def _schema_of(api_version: str, kind: str) -> dict[str, Any]:
    """The definition of a built-in kind."""
    group, _, version = api_version.rpartition("/")
    wanted = {"group": group, "version": version, "kind": kind}
    known = _definitions().values()
    return next(one for one in known if wanted in one.get("x-kubernetes-group-version-kind", ()))


def _taken(value: Any, schema: dict[str, Any], path: str, unknown: list[str]) -> Any:
    """A value as it is stored: without nulls and what its schema does not know."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name.endswith("JSONSchemaProps"):
            return value
        if name.endswith("Quantity"):
            return str(value)
        schema = _definitions()[name]
    fields, more = schema.get("properties"), schema.get("additionalProperties")
    if fields is not None or isinstance(more, dict):
        if value.__class__ is not dict:
            raise WrongTypeError(path, "object", value)
        found = {}
        for name, inner in value.items():
            here = f"{path}.{name}" if path else name
            known = more if fields is None else fields.get(name)
            if inner is not None and known is not None:
                found[name] = _taken(inner, known, here, unknown)
            elif inner is not None:
                unknown.append(here)
        return found
    if "items" in schema:
        if value.__class__ is not list:
            raise WrongTypeError(path, "slice", value)
        items = schema["items"]
        return [_taken(one, items, f"{path}[{place}]", unknown) for place, one in enumerate(value)]
    word = schema.get("type")
    word = word[0] if isinstance(word, list) else word
    wanted = _TYPES.get(word, object)
    if not isinstance(value, wanted) or (value.__class__ is bool and wanted in (int, _TYPES["number"])):
        raise WrongTypeError(path, schema.get("format") or str(word), value)
    return value
