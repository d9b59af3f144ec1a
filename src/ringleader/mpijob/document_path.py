"""Where in a document something stands: ``spec.mpiReplicaSpecs[Worker].template.spec.containers[0]``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Path:
    """The way from a document's root to one of its values."""

    keys: tuple[str | int, ...] = ()
    """Keys of maps and indices of lists, outermost first."""
    text: str = ""
    """As shown: fields with dots, keys of maps and indices in brackets; empty for the root."""

    def field(self, name: str) -> Path:
        """Return the path of a field."""
        return Path(keys=(*self.keys, name), text=f"{self.text}.{name}" if self.text else name)

    def key(self, name: str) -> Path:
        """Return the path of a key of a map."""
        return Path(keys=(*self.keys, name), text=f"{self.text}[{name}]")

    def item(self, index: int) -> Path:
        """Return the path of an item of a list."""
        return Path(keys=(*self.keys, index), text=f"{self.text}[{index}]")

    def fields(self, *names: str) -> Path:
        """Return the path that leads through several fields."""
        path = self
        for name in names:
            path = path.field(name)
        return path


ROOT = Path()


@dataclass(frozen=True, kw_only=True)
class Places:
    """Lines of the file that a document came from."""

    source: str = ""
    """The file's name as the user wrote it; empty where the document came from no file."""
    lines: Mapping[tuple[str | int, ...], int] = field(default_factory=dict)
    """Line, counted from 1, of every value in the document by the keys that lead to it."""

    def where(self, path: Path) -> str:
        """Return ``job.yaml:12 spec.slotsPerWorker``; without a file the path alone."""
        if not self.source:
            return path.text or "the document"
        line = self.line(path)
        place = f"{self.source}:{line}" if line else self.source
        return f"{place} {path.text}" if path.text else place

    def line(self, path: Path) -> int:
        """Return a value's line; for one that is not in the file that of the nearest one around it, or 0."""
        keys = path.keys
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return self.lines.get(keys, 0)


NOWHERE = Places()
