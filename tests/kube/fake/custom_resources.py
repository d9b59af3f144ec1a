"""Custom resources: what a definition is made into, and structural schemas, which prune, default and judge.

Rules in CEL (``x-kubernetes-validations``) are judged by cel-python.
"""

import copy
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import celpy
import orjson
from openapi_schema_validator import OAS30Validator, oas30_format_checker
from tests.kube.fake.kinds import Kind
from tests.kube.fake.refusals import bad_value, required, unsupported

Schema = dict[str, Any]
MISSING = object()
_KNOWN = {
    "type", "description", "properties", "items", "additionalProperties", "required", "enum", "default",
    "minimum", "maximum", "minLength", "minItems", "pattern", "format",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations",
}  # fmt: skip
"""Words of a schema that this server obeys; a definition with any other is refused, not half obeyed."""

# Definitions


@dataclass(frozen=True, kw_only=True, eq=False)
class Custom:
    """How objects of a custom kind are stored."""

    schema: Schema
    judge: OAS30Validator
    scale: Mapping[str, str] | None

    def take(self, document: dict[str, Any]) -> list[str]:
        """Prune and default a document in place; return the paths dropped."""
        return _completed(document, self.schema, "")

    def faults(self, new: dict[str, Any], old: dict[str, Any] | None) -> list[str]:
        """What is wrong with an object; CEL is judged where all types are right."""
        before = MISSING if old is None else old
        found = list(_schema_faults(self.judge, self.schema, new, before))
        return found or list(_rule_faults(self.schema, new, before, ""))


def kinds_of(document: dict[str, Any]) -> list[Kind]:
    """The kinds that a definition brings."""
    spec = document["spec"]
    found = []
    for version in spec["versions"]:
        subresources = version.get("subresources") or {}
        body = version["schema"]["openAPIV3Schema"]
        judge = OAS30Validator(for_openapi(body), format_checker=oas30_format_checker)
        found.append(
            Kind(
                group=spec["group"],
                version=version["name"],
                plural=spec["names"]["plural"],
                kind=spec["names"]["kind"],
                namespaced=spec["scope"] == "Namespaced",
                subresources=tuple(subresources),
                has_generation=True,
                custom=Custom(schema=body, judge=judge, scale=subresources.get("scale")),
            )
        )
    return found


def definition_faults(new: dict[str, Any], old: dict[str, Any] | None) -> Iterator[str]:
    """What is wrong with a definition."""
    spec, name = new["spec"], new["metadata"].get("name")
    if name != f"{spec['names']['plural']}.{spec['group']}":
        yield bad_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    for version in spec["versions"]:
        for path, node in _nodes(version["schema"]["openAPIV3Schema"]):
            for word in node.keys() - _KNOWN:
                yield bad_value("spec.versions", f"{path}: {word}", "not supported here")


# Structural schemas


def _nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema inside a schema with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _nodes(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from _nodes(schema[word], f"{path}.*")


def _parts(value: Any, schema: Schema, path: str) -> Iterator[tuple[Any, Any, Schema | None, str]]:
    """Fields of an object or items of a list: key, value, schema (``None``: not declared), path."""
    if isinstance(value, dict):
        more = schema.get("additionalProperties")
        for name, one in value.items():
            inner = schema.get("properties", {}).get(name, more if isinstance(more, dict) else None)
            yield name, one, inner, f"{path}.{name}" if path else name
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield place, one, schema.get("items"), f"{path}[{place}]"


def _completed(value: Any, schema: Schema, path: str) -> list[str]:
    """Fill in defaults where a field is missing or null, and drop what the schema does not declare."""
    dropped: list[str] = []
    for name, inner in schema.get("properties", {}).items() if isinstance(value, dict) else ():
        if value.get(name) is None and "default" in inner:
            value[name] = copy.deepcopy(inner["default"])
    keeps = schema.get("x-kubernetes-preserve-unknown-fields") or isinstance(value, list)
    for name, one, inner, here in list(_parts(value, schema, path)):
        if inner is not None and here not in ("apiVersion", "kind", "metadata"):
            dropped += _completed(one, inner, here)
        elif not keeps and here not in ("apiVersion", "kind", "metadata"):
            del value[name]
            dropped.append(here)
    return dropped


def for_openapi(node: Any) -> Any:
    """A schema in plain OpenAPI 3.0: Kubernetes' own words for a number or a text spelt out."""
    if isinstance(node, list):
        return [for_openapi(one) for one in node]
    if not isinstance(node, dict):
        return node
    plain = {key: for_openapi(value) for key, value in node.items() if not key.startswith("x-kubernetes-")}
    if node.get("x-kubernetes-int-or-string"):
        text = {"type": "string", **{key: plain.pop(key) for key in ("pattern",) if key in plain}}
        plain["anyOf"] = [{"type": "integer"}, text]
    return plain


def _schema_faults(judge: OAS30Validator, schema: Schema, new: Any, old: Any) -> Iterator[str]:
    """What is wrong with an object; what an update leaves as it was is not looked at again (ratcheting)."""
    for error in judge.iter_errors(new):
        before = old
        for key in error.absolute_path:
            before = _before(before, key)
        if before is MISSING or before != error.instance:
            path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.absolute_path)
            yield _fault(error, path.lstrip("."))
    yield from _duplicates(new, schema, "")


def _fault(error: Any, path: str) -> str:
    """An error of the validator in the words of the server."""
    value, limit = error.instance, error.validator_value
    if error.validator == "required":
        name = error.message.split("'")[1]
        return required(f"{path}.{name}" if path else name)
    if error.validator == "enum":
        return unsupported(path, value, limit)
    words = {
        "minimum": f"should be greater than or equal to {limit}",
        "type": f"must be of type {limit}",
    }
    return bad_value(path or "<nil>", value, f"{path} in body {words.get(error.validator, error.message)}")


def _before(old: Any, key: Any) -> Any:
    """What an update finds under a key of an object, or at a place of a list."""
    if isinstance(old, dict):
        return old.get(key, MISSING)
    return old[key] if isinstance(old, list) and key < len(old) else MISSING


def _duplicates(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """Items of a list that have the key of an earlier one."""
    names = schema.get("x-kubernetes-list-map-keys", ())
    seen: list[Any] = []
    for _, one, inner, here in _parts(value, schema, path):
        if names and isinstance(one, dict):
            key = [one.get(name) for name in names]
            if key in seen:
                yield f"{here}: Duplicate value: {key}"
            seen.append(key)
        if inner is not None:
            yield from _duplicates(one, inner, here)


# Rules in CEL


def _rule_faults(schema: Schema, new: Any, old: Any, path: str) -> Iterator[str]:
    """What the rules have against a value; those that compare with the state before are of updates only."""
    for rule in schema.get("x-kubernetes-validations", ()):
        text, is_transition = rule["rule"], "oldSelf" in rule["rule"]
        if is_transition and old is MISSING:
            continue
        values = {"self": new, **({"oldSelf": old} if is_transition else {})}
        verdict = judged(text, _encoded(values, is_root=not path))
        if verdict is not True:
            words = rule["message"] if verdict is False else f"rule evaluation error: {verdict}"
            field = (path + rule.get("fieldPath", "")).lstrip(".")
            yield bad_value(field or "<nil>", "object", words)
    for name, inner in schema.get("properties", {}).items():
        if isinstance(new, dict) and name in new:
            yield from _rule_faults(inner, new[name], _before(old, name), f"{path}.{name}")


def _encoded(values: dict[str, Any], *, is_root: bool) -> bytes:
    """What rules see: of the root's metadata, only the name; no status, which changes all the time."""
    seen = values
    if is_root:
        name = {"name": values["self"]["metadata"]["name"]}
        seen = {key: {"metadata": name, "spec": value.get("spec", {})} for key, value in values.items()}
    return orjson.dumps(seen, option=orjson.OPT_SORT_KEYS)


@functools.lru_cache(maxsize=8192)
def judged(text: str, values: bytes) -> bool | str:
    """The value of a CEL expression; words of an error where it has none."""
    context = {name: celpy.json_to_cel(value) for name, value in orjson.loads(values).items()}
    try:
        return bool(_program(text).evaluate(context))
    except celpy.CELEvalError as error:
        return str(error.args[0])


@functools.cache
def _program(text: str) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(text))
