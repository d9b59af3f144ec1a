"""Fields of the API as data: what ``Annotated`` says of them beyond their Python types, and a model's fields.

A dataclass with such fields is the one source: ``parser`` reads and writes manifests by these
field schemas, ``crd`` makes the CRD's schema of them and ``scripts/mpijob_reference.py`` the reference page.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from ringleader.kubernetes.mpijob.document_faults import FieldPath


@dataclass(frozen=True, kw_only=True)
class IntegerRange:
    """Limits of an integer."""

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
    SET_BY_SERVER = "written by servers: it has no place in a request"
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
    is_model: bool
    """The kind is a dataclass with its own fields."""
    is_list: bool
    flags: frozenset[FieldFlag]
    limits: IntegerRange
    """Of an integer."""
    content: JsonContent | None
    """Of JSON that is kept as it is."""
    is_required: bool
    default: Any
    """``None`` where it is required or has none."""

    def has(self, flag: FieldFlag) -> bool:
        """Say whether the field has this flag."""
        return flag in self.flags

    def below(self, path: FieldPath) -> FieldPath:
        """Return where the field is, in an object at a path."""
        return path.key(self.name) if self.is_key else path.field(self.name)


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
    return {
        one.target.id: " ".join(str(text.value.value).split())
        for one, text in pairwise(tree.body)
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def summary(model: type) -> str:
    """Return the first line of a dataclass's own docstring."""
    return (inspect.getdoc(model) or "").partition("\n")[0]


def _field_schema(field: dataclasses.Field[Any], hint: Any) -> FieldSchema:
    kind, is_list, notes = _opened(hint)
    key = next((one.name for one in notes if isinstance(one, MapKey)), "")
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    is_required = default is dataclasses.MISSING
    first, *others = field.name.split("_")
    return FieldSchema(
        attribute=field.name,
        name=key or first + "".join(word.capitalize() for word in others),
        is_key=bool(key),
        kind=kind,
        is_model=isinstance(kind, type) and dataclasses.is_dataclass(kind),
        is_list=is_list,
        flags=frozenset(one for one in notes if isinstance(one, FieldFlag)),
        limits=next((one for one in notes if isinstance(one, IntegerRange)), IntegerRange()),
        content=next((one for one in notes if isinstance(one, JsonContent)), None),
        is_required=is_required,
        default=None if is_required else default,
    )


def _opened(hint: Any) -> tuple[Any, bool, tuple[object, ...]]:
    """Take ``Annotated``, ``| None`` and ``tuple[…, ...]`` off a type: (kind, is a list, annotations)."""
    origin = get_origin(hint)
    if origin is Annotated:
        kind, is_list, notes = _opened(get_args(hint)[0])
        return kind, is_list, (*notes, *hint.__metadata__)
    if origin in (Union, types.UnionType):
        (inner,) = (one for one in get_args(hint) if one is not type(None))
        return _opened(inner)
    if origin is tuple:
        kind, _, notes = _opened(get_args(hint)[0])
        return kind, True, notes
    return (hint if origin is None else origin), False, ()


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a part of a job: empty text, maps and lists are left out, empty parts are not."""
    found = ((field, getattr(value, field.attribute)) for field in field_schemas(value.__class__))
    return {field.name: _plain(one) for field, one in found if not _is_left_out(field, one)}


def _is_left_out(field: FieldSchema, value: object) -> bool:
    if value is None or (isinstance(value, str | tuple | Mapping) and not value and not field.is_required):
        return True
    return field.has(FieldFlag.OMITTED) and value == field.default


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return fields_of(value)
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
