"""Fields of the API as data: what ``Annotated`` says of them beyond their Python types, and a model's fields.

A dataclass with such fields is the one source: manifests are read and written, the CRD's schema is made and
the reference page is printed by these field schemas, so they cannot disagree.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class IntegerRange:
    """Limits of a whole number."""

    bits: int = 32
    """Size of the signed integer that the API keeps it in."""
    minimum: int | None = None
    """``None``: as small as the bits allow."""
    maximum: int | None = None
    """``None``: as large as the bits allow."""


@dataclass(frozen=True)
class MapKey:
    """A key of a map, which a field path shows in brackets: ``mpiReplicaSpecs[Worker]``."""

    name: str
    """As JSON has it; any other field has the attribute's name in camel case."""


class FieldFlag(Enum):
    """Properties that a field has or has not."""

    EMPTY_IS_DEFAULT = "an empty string means the same as leaving the field out"
    DEFAULT_NOT_STORED = "the default is the controller's: the API server stores nothing for it"
    OMITTED = "left out of a written document while it has its default"
    SET_BY_SERVER = "a server's word: it has no place in a request"
    TIME = "a moment as RFC 3339 text in UTC"


class JsonContent(Enum):
    """What a JSON value that we keep as it is may hold."""

    ANY = "any object"
    TEXTS = "a map of text to text"
    QUANTITIES = "a map of resource names to quantities such as 500m or 2Gi"
    TEMPLATE = "a Pod template with at least one container"


Json = Mapping[str, Any]
"""A JSON object that we carry without looking into every field of it."""
Texts = Annotated[Json, JsonContent.TEXTS]
Quantities = Annotated[Json, JsonContent.QUANTITIES]
Template = Annotated[Json, JsonContent.TEMPLATE]
AnyObject = Annotated[Json, JsonContent.ANY]
Count = Annotated[int, IntegerRange(minimum=0)]
Time = Annotated[str, FieldFlag.TIME]


@dataclass(frozen=True, kw_only=True)
class FieldSchema:
    """One field."""

    attribute: str
    """Its name in Python."""
    name: str
    """Its name in JSON."""
    is_key: bool
    """It is a key of a map: a field path shows it in brackets."""
    kind: Any
    """``int``, ``bool``, ``str``, a StrEnum, a dataclass, ``Mapping``; for a list the kind of its items."""
    is_list: bool
    annotations: tuple[object, ...]
    """What ``Annotated`` says of the field, or for a list of its items."""
    is_required: bool
    default: Any
    """``None`` where it is required or has none."""

    def has(self, flag: FieldFlag) -> bool:
        """Say whether the field has this flag."""
        return flag in self.annotations

    def annotation(self, kind: type[Found]) -> Found | None:
        """Return the field's annotation of a kind, or ``None``."""
        return next((one for one in self.annotations if isinstance(one, kind)), None)


@cache
def field_schemas(model: type[Any]) -> tuple[FieldSchema, ...]:
    """Return the fields of a dataclass in the order in which they are written."""
    hints = get_type_hints(model, include_extras=True)
    return tuple(_field_schema(field, hints[field.name]) for field in dataclasses.fields(model))


@cache
def descriptions(model: type[Any]) -> dict[str, str]:
    """Return attribute → the text that stands under it in the source, on one line."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for one, following in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            text = _text(following)
            if text:
                found[one.target.id] = " ".join(text.split())
    return found


def summary(model: type) -> str:
    """Return the first line of a dataclass's own docstring."""
    return (inspect.getdoc(model) or "").partition("\n")[0]


def camel_case(attribute: str) -> str:
    """``slots_per_worker`` → ``slotsPerWorker``."""
    first, *others = attribute.split("_")
    return first + "".join(word.capitalize() for word in others)


def _field_schema(field: dataclasses.Field[Any], hint: Any) -> FieldSchema:
    kind, is_list, annotations = _opened(hint)
    key = next((one for one in annotations if isinstance(one, MapKey)), None)
    default = None if field.default is dataclasses.MISSING else field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    return FieldSchema(
        attribute=field.name,
        name=key.name if key else camel_case(field.name),
        is_key=key is not None,
        kind=kind,
        is_list=is_list,
        annotations=annotations,
        is_required=field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        default=default,
    )


def _opened(hint: Any) -> tuple[Any, bool, tuple[object, ...]]:
    """Take ``Annotated``, ``| None`` and ``tuple[…, ...]`` off a type: (kind, is a list, annotations)."""
    origin = get_origin(hint)
    if origin is Annotated:
        kind, is_list, annotations = _opened(get_args(hint)[0])
        return kind, is_list, (*annotations, *hint.__metadata__)
    if origin in (Union, types.UnionType):
        (inner,) = (one for one in get_args(hint) if one is not type(None))
        return _opened(inner)
    if origin is tuple:
        kind, _, annotations = _opened(get_args(hint)[0])
        return kind, True, annotations
    return (hint if origin is None else origin), False, ()


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""


def is_model(kind: Any) -> bool:
    """Say whether a kind is a dataclass with fields of its own."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)
