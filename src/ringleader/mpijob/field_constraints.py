"""What a field of the API allows beyond its Python type: marks for ``Annotated``, and the types made of them.

A dataclass with such fields is the one source from which manifests are read and written, the CRD's schema is
made and the reference page is printed (``ringleader.mpijob.field_schema`` looks the marks up).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any


@dataclass(frozen=True, kw_only=True)
class Number:
    """Limits of a whole number."""

    bits: int = 32
    """Size of the signed integer that the API keeps it in."""
    minimum: int | None = None
    """``None``: as small as the bits allow."""
    maximum: int | None = None
    """``None``: as large as the bits allow."""


@dataclass(frozen=True, kw_only=True)
class Named:
    """The name in JSON where it is not the attribute's name in camel case."""

    name: str
    is_key: bool = False
    """True for a key of a map, which a field path shows in brackets: ``mpiReplicaSpecs[Worker]``."""


class Mark(Enum):
    """Properties that a field has or has not."""

    EMPTY_IS_DEFAULT = "an empty string means the same as leaving the field out"
    DEFAULT_NOT_STORED = "the default is the controller's: the API server stores nothing for it"
    OMITTED = "left out of a written document while it has its default"
    SET_BY_SERVER = "a server's word: it has no place in a request"
    TIME = "a moment as RFC 3339 text in UTC"


class Content(Enum):
    """What a JSON value that we keep as it is may hold."""

    ANY = "any object"
    TEXTS = "a map of text to text"
    QUANTITIES = "a map of resource names to quantities such as 500m or 2Gi"
    TEMPLATE = "a Pod template with at least one container"


Json = Mapping[str, Any]
"""A JSON object that we carry without looking into every field of it."""
Texts = Annotated[Json, Content.TEXTS]
Quantities = Annotated[Json, Content.QUANTITIES]
Template = Annotated[Json, Content.TEMPLATE]
AnyObject = Annotated[Json, Content.ANY]
Count = Annotated[int, Number(minimum=0)]
Time = Annotated[str, Mark.TIME]
