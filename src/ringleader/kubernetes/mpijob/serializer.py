"""An ``MPIJob`` becomes a document: what ``kubectl apply`` takes and ``mpijob.parser`` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import StrEnum
from typing import Any

from ringleader.kubernetes.mpijob.field_schema import FieldFlag, FieldSchema, field_schemas
from ringleader.kubernetes.mpijob.model import API_VERSION, KIND, MPIJob


def write(job: MPIJob) -> dict[str, Any]:
    """Return the job's document with every default spelt out, made of new maps and lists."""
    return {"apiVersion": API_VERSION, "kind": KIND, **fields_of(job)}


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a part of a job: empty text, maps and lists are left out, empty parts are not."""
    found = ((field, getattr(value, field.attribute)) for field in field_schemas(value.__class__))
    return {field.name: _plain(one) for field, one in found if not _is_left_out(field, one)}


def _is_left_out(field: FieldSchema, value: object) -> bool:
    if value is None or (isinstance(value, str | tuple | Mapping) and not value and not field.is_required):
        return True
    return field.has(FieldFlag.OMITTED) and value == field.default


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return fields_of(value)
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
