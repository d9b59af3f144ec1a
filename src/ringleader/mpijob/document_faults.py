"""Collecting what is wrong with a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringleader.errors import Fault
from ringleader.mpijob.document_path import NOWHERE, Path, Places


@dataclass(kw_only=True)
class Faults:
    """The faults of one document."""

    places: Places = NOWHERE
    strict: bool = True
    """Unknown fields are faults."""
    found: list[tuple[int, Fault]] = field(default_factory=list)
    """In the order in which they were found, each with its line in the file."""

    def add(self, path: Path, what: str, hint: str = "") -> None:
        """Note one fault."""
        fault = Fault(where=self.places.where(path), what=what, hint=hint)
        self.found.append((self.places.line(path), fault))

    def in_order(self) -> tuple[Fault, ...]:
        """Return the faults in the order of the file's lines."""
        return tuple(fault for _, fault in sorted(self.found, key=lambda one: one[0]))


def kind_of(value: object) -> str:
    """Say what a JSON value is, short enough for a message."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 40 else value[:40] + '…'!r}"
    if isinstance(value, Mapping):
        return "a map"
    return "a list" if isinstance(value, list | tuple) else type(value).__name__
