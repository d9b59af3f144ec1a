"""Refusals as a real API server words them: a ``Status`` with code, reason, message and details."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.kube.fake.kinds import Kind


class Refusal(Exception):
    """The server says no."""

    def __init__(
        self, code: int, reason: str, message: str, *, details: Mapping[str, Any] | None = None
    ) -> None:
        self.code, self.reason, self.message = code, reason, message
        self.details = dict(details or {})
        self.headers: dict[str, str] = {}
        super().__init__(f"{code} {reason}: {message}")

    def document(self) -> dict[str, Any]:
        """The ``Status`` that is sent."""
        found = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        return {**found, "details": self.details} if self.details else found


@dataclass(frozen=True)
class FieldFault:
    """One thing wrong with one field."""

    field: str
    reason: str
    """``FieldValueInvalid`` …"""
    message: str


def required(field: str, words: str = "") -> FieldFault:
    return FieldFault(field, "FieldValueRequired", f"Required value{': ' + words if words else ''}")


def bad_value(field: str, value: object, words: str) -> FieldFault:
    return FieldFault(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {words}")


def unsupported(field: str, value: object, choices: Iterable[object]) -> FieldFault:
    listed = ", ".join(f'"{one}"' for one in choices)
    words = f"Unsupported value: {_shown(value)}: supported values: {listed}"
    return FieldFault(field, "FieldValueNotSupported", words)


def forbidden_field(field: str, words: str) -> FieldFault:
    return FieldFault(field, "FieldValueForbidden", f"Forbidden: {words}")


def duplicate(field: str, value: object) -> FieldFault:
    return FieldFault(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def too_long(field: str, limit: int) -> FieldFault:
    return FieldFault(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def _shown(value: object) -> str:
    """A value as Go's field errors print it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _of(kind: Kind, name: str, **more: Any) -> dict[str, Any]:
    group = {"group": kind.group} if kind.group else {}
    return {**({"name": name} if name else {}), **group, "kind": kind.plural, **more}


def not_found(kind: Kind, name: str) -> Refusal:
    return Refusal(404, "NotFound", f'{kind.qualified} "{name}" not found', details=_of(kind, name))


def already_exists(kind: Kind, name: str) -> Refusal:
    return Refusal(409, "AlreadyExists", f'{kind.qualified} "{name}" already exists', details=_of(kind, name))


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(kind: Kind, name: str, words: str = STALE, *, by_kind: bool = False, **details: Any) -> Refusal:
    """``by_kind``: preconditions of a deletion name the kind where all else names the resource."""
    named = (f"{kind.kind}.{kind.group}" if kind.group else kind.kind) if by_kind else kind.qualified
    message = f'Operation cannot be fulfilled on {named} "{name}": {words}'
    return Refusal(409, "Conflict", message, details=_of(kind, name, **details))


def invalid(kind: Kind, name: str, faults: Iterable[FieldFault]) -> Refusal:
    causes = [{"reason": one.reason, "message": one.message, "field": one.field} for one in faults]
    texts = [f"{one['field']}: {one['message']}" for one in causes]
    words = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {**_of(kind, name, causes=causes), "kind": kind.kind}
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return Refusal(422, "Invalid", f'{qualified} "{name}" is invalid: {words}', details=details)


def forbidden(kind: Kind, name: str, words: str, **details: Any) -> Refusal:
    subject = f'{kind.qualified} "{name}"' if name else kind.qualified
    return Refusal(403, "Forbidden", f"{subject} is forbidden: {words}", details=_of(kind, name, **details))


def bad_request(words: str) -> Refusal:
    return Refusal(400, "BadRequest", words)


def expired(words: str) -> Refusal:
    return Refusal(410, "Expired", words)


def too_old(asked: int, oldest: int) -> Refusal:
    return expired(f"too old resource version: {asked} ({oldest})")


def not_allowed() -> Refusal:
    return Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
