"""The fields of a model's dataclass as data: JSON name, kind, default, limits, and the text under each.

Reading, writing, the CRD and the reference page all go by these shapes, so they cannot disagree.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ringleader.mpijob.field_constraints import Mark, Named

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class Shape:
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
    marks: tuple[object, ...]
    """What ``Annotated`` says of the field, or for a list of its items."""
    is_required: bool
    default: Any
    """``None`` where it is required or has none."""

    def has(self, mark: Mark) -> bool:
        """Say whether the field carries a mark."""
        return mark in self.marks

    def mark(self, kind: type[Found]) -> Found | None:
        """Return the field's mark of a kind, or ``None``."""
        return next((mark for mark in self.marks if isinstance(mark, kind)), None)


@cache
def shapes(model: type[Any]) -> tuple[Shape, ...]:
    """Return the fields of a dataclass in the order in which they are written."""
    hints = get_type_hints(model, include_extras=True)
    return tuple(_shape(field, hints[field.name]) for field in dataclasses.fields(model))


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


def _shape(field: dataclasses.Field[Any], hint: Any) -> Shape:
    kind, is_list, marks = _opened(hint)
    named = next((mark for mark in marks if isinstance(mark, Named)), None)
    default = None if field.default is dataclasses.MISSING else field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    return Shape(
        attribute=field.name,
        name=named.name if named else camel_case(field.name),
        is_key=bool(named and named.is_key),
        kind=kind,
        is_list=is_list,
        marks=marks,
        is_required=field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        default=default,
    )


def _opened(hint: Any) -> tuple[Any, bool, tuple[object, ...]]:
    """Take ``Annotated``, ``| None`` and ``tuple[…, ...]`` off a type: (kind, is a list, marks)."""
    origin = get_origin(hint)
    if origin is Annotated:
        kind, is_list, marks = _opened(get_args(hint)[0])
        return kind, is_list, (*marks, *hint.__metadata__)
    if origin in (Union, types.UnionType):
        (inner,) = (one for one in get_args(hint) if one is not type(None))
        return _opened(inner)
    if origin is tuple:
        kind, _, marks = _opened(get_args(hint)[0])
        return kind, True, marks
    return (hint if origin is None else origin), False, ()


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""


def is_model(kind: Any) -> bool:
    """Say whether a kind is a dataclass with fields of its own."""
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)
