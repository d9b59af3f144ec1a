"""Rules in CEL of custom resources (``x-kubernetes-validations``), judged by cel-python."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import celpy
import orjson
from tests.kube.fake.refusals import FieldFault, bad_value
from tests.kube.fake.schema import MISSING, Schema, nodes

_ROOTS = re.compile(r"\b(?:self|oldSelf)\b(?:\.(\w+))?")


@dataclass(frozen=True, kw_only=True)
class CelRule:
    """One rule and where it stands."""

    path: tuple[str, ...]
    text: str
    message: str
    field: str
    """Path of the field at fault."""
    is_transition: bool
    """It compares with the state before: only updates are judged."""
    parts: tuple[str, ...]
    """Fields of ``self`` that it looks at; empty: any. What it does not look at cannot change its verdict."""


def rules(schema: Schema) -> tuple[CelRule, ...]:
    """Every rule of a schema, compiled on the way so that a wrong one is refused at once."""
    found = []
    for path, node in nodes(schema):
        for one in node.get("x-kubernetes-validations", ()):
            _program(one["rule"])
            at = ".".join(path) + one.get("fieldPath", "")
            found.append(
                CelRule(
                    path=path,
                    text=one["rule"],
                    message=one.get("message") or f"failed rule: {one['rule']}",
                    field=at.lstrip(".") or "<nil>",
                    is_transition=bool(re.search(r"\boldSelf\b", one["rule"])),
                    parts=_parts(one["rule"]),
                )
            )
    return tuple(found)


def _parts(text: str) -> tuple[str, ...]:
    words = set(_ROOTS.findall(text))
    return () if "" in words else tuple(sorted(words))


def faults(found: tuple[CelRule, ...], new: Any, old: Any) -> list[FieldFault]:
    """What the rules have against an object; ``old`` is ``None`` when it is being made."""
    wrong = []
    for rule in found:
        for value, before in _values(new, MISSING if old is None else old, rule.path):
            if rule.is_transition and before is MISSING:
                continue
            context = {"self": _seen(value, rule)}
            if rule.is_transition:
                context["oldSelf"] = _seen(before, rule)
            verdict = _judge(rule.text, orjson.dumps(context, option=orjson.OPT_SORT_KEYS))
            if verdict is not True:
                words = rule.message if verdict is False else f"rule evaluation error: {verdict}"
                wrong.append(bad_value(rule.field, "object", words))
    return wrong


def _seen(value: Any, rule: CelRule) -> Any:
    """What of a value the rule can see: of metadata, only the names."""
    if not isinstance(value, dict):
        return value
    kept = {name: value[name] for name in rule.parts if name in value} if rule.parts else dict(value)
    if not rule.path and "metadata" in kept:
        names = {key: kept["metadata"][key] for key in ("name", "generateName") if key in kept["metadata"]}
        kept["metadata"] = names
    return kept


def _values(new: Any, old: Any, path: tuple[str, ...]) -> Iterator[tuple[Any, Any]]:
    if not path:
        yield new, old
    elif path[0] == "*":
        items: Mapping[Any, Any] = dict(enumerate(new)) if isinstance(new, list) else new
        for key, value in items.items():
            yield from _values(value, MISSING if isinstance(new, list) else _inner(old, key), path[1:])
    elif isinstance(new, dict) and path[0] in new:
        yield from _values(new[path[0]], _inner(old, path[0]), path[1:])


def _inner(old: Any, key: Any) -> Any:
    return old.get(key, MISSING) if isinstance(old, dict) else MISSING


@functools.cache
def _environment() -> celpy.Environment:
    return celpy.Environment()


@functools.cache
def _program(text: str) -> Any:
    environment = _environment()
    return environment.program(environment.compile(text))


@functools.lru_cache(maxsize=8192)
def _judge(text: str, context: bytes) -> bool | str:
    values = {name: celpy.json_to_cel(value) for name, value in orjson.loads(context).items()}
    try:
        return bool(_program(text).evaluate(values))
    except celpy.CELEvalError as error:
        return str(error.args[0])
