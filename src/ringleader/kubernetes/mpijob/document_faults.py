"""What is wrong with a document, and where: ``job.yaml:12 spec.mpiReplicaSpecs[Worker].template``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ringleader import errors
from ringleader.errors import Fault


@dataclass(frozen=True, kw_only=True)
class FieldPath:
    """The way from a document's root to one of its values."""

    keys: tuple[str | int, ...] = ()
    """Keys of maps and indices of lists, outermost first."""
    text: str = ""
    """As shown: fields with dots, keys of maps and indices in brackets; empty for the root."""

    def field(self, name: str) -> FieldPath:
        """Return the path of a field."""
        return FieldPath(keys=(*self.keys, name), text=f"{self.text}.{name}" if self.text else name)

    def key(self, name: str) -> FieldPath:
        """Return the path of a key of a map."""
        return FieldPath(keys=(*self.keys, name), text=f"{self.text}[{name}]")

    def item(self, index: int) -> FieldPath:
        """Return the path of an item of a list."""
        return FieldPath(keys=(*self.keys, index), text=f"{self.text}[{index}]")

    def fields(self, *names: str) -> FieldPath:
        """Return the path that leads through several fields."""
        path = self
        for name in names:
            path = path.field(name)
        return path


ROOT = FieldPath()


@dataclass(frozen=True, kw_only=True)
class SourceLines:
    """Lines of the file that a document came from."""

    source: str = ""
    """The file's name as the user wrote it; empty where the document came from no file."""
    lines: Mapping[tuple[str | int, ...], int] = field(default_factory=dict)
    """Line, counted from 1, of every value in the document by the keys that lead to it."""

    def where(self, path: FieldPath) -> str:
        """Return ``job.yaml:12 spec.slotsPerWorker``; without a file the path alone."""
        if not self.source:
            return path.text or "the document"
        line = self.line(path)
        place = f"{self.source}:{line}" if line else self.source
        return f"{place} {path.text}" if path.text else place

    def line(self, path: FieldPath) -> int:
        """Return a value's line; for one that is not in the file that of the nearest one around it, or 0."""
        keys = path.keys
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return self.lines.get(keys, 0)


NOWHERE = SourceLines()


@dataclass(kw_only=True)
class Faults:
    """The faults of one document."""

    places: SourceLines = NOWHERE
    strict: bool = True
    """Unknown fields are faults."""
    model: type | None = None
    """Dataclass of the spec: an unknown field is looked for elsewhere in it; ``None``: that of an MPIJob."""
    found: list[tuple[int, Fault]] = field(default_factory=list)
    """In the order in which they were found, each with its line in the file."""

    def add(self, path: FieldPath, what: str, hint: str = "") -> None:
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


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a misspelt one is closest to, or ``None``."""
    names = {one.lower(): one for one in known}
    if name.lower() in names:
        return names[name.lower()]
    found = errors.nearest(name.lower(), names, cutoff=0.75)
    return names[found[0]] if found else None
