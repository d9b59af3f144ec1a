"""Refusals in the words of a real API server: a ``Status`` with code, reason and message."""

from collections.abc import Iterable
from typing import Any

from tests.kube.fake.kinds import Kind

STALE = "the object has been modified; please apply your changes to the latest version and try again"


class Refusal(Exception):
    """The server says no."""

    def __init__(self, code: int, reason: str, message: str, *, retry_after: int | None = None) -> None:
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after
        super().__init__(f"{code} {reason}: {message}")

    def document(self) -> dict[str, Any]:
        """The ``Status`` that is sent."""
        found = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": self.code}
        found |= {"message": self.message, "reason": self.reason}
        return found if self.retry_after is None else found | _pause(self.retry_after)

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def _pause(seconds: int) -> dict[str, Any]:
    return {"details": {"retryAfterSeconds": seconds}}


# What is wrong with one field


def required(field: str) -> str:
    return f"{field}: Required value"


def bad_value(field: str, value: object, words: str) -> str:
    return f"{field}: Invalid value: {_shown(value)}: {words}"


def unsupported(field: str, value: object, choices: Iterable[object]) -> str:
    listed = ", ".join(f'"{one}"' for one in choices)
    return f"{field}: Unsupported value: {_shown(value)}: supported values: {listed}"


def _shown(value: object) -> str:
    """A value as Go's field errors print it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


# Refusals


def not_found(kind: Kind, name: str) -> Refusal:
    return Refusal(404, "NotFound", f'{kind.qualified} "{name}" not found')


def already_exists(kind: Kind, name: str) -> Refusal:
    return Refusal(409, "AlreadyExists", f'{kind.qualified} "{name}" already exists')


def conflict(kind: Kind, name: str, words: str = STALE) -> Refusal:
    return Refusal(409, "Conflict", f'Operation cannot be fulfilled on {kind.qualified} "{name}": {words}')


def invalid(kind: Kind, name: str, faults: list[str]) -> Refusal:
    words = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return Refusal(422, "Invalid", f'{qualified} "{name}" is invalid: {words}')


def forbidden(kind: Kind, name: str, words: str) -> Refusal:
    subject = f'{kind.qualified} "{name}"' if name else kind.qualified
    return Refusal(403, "Forbidden", f"{subject} is forbidden: {words}")


def bad_request(words: str) -> Refusal:
    return Refusal(400, "BadRequest", words)


def expired(words: str) -> Refusal:
    return Refusal(410, "Expired", words)


def not_allowed() -> Refusal:
    return Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
