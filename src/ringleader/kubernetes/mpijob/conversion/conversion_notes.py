"""The list of what a conversion did."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringleader.kubernetes.mpijob.document_faults import FieldPath, SourceLines


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing that is different now."""

    where: str
    """Field path, in the old manifest's words where it had the field."""
    what: str
    """What became of it."""
    is_lost: bool = False
    """It could not be carried over: somebody should look at it."""

    def __str__(self) -> str:
        lost = "NOT CARRIED OVER: " if self.is_lost else ""
        return f"{self.where}: {lost}{self.what}"


@dataclass(kw_only=True)
class Changes:
    """Collects changes, and which field went where."""

    found: tuple[Change, ...] = ()
    _moved: list[tuple[FieldPath, FieldPath]] = field(default_factory=list)

    def add(self, path: FieldPath, what: str, *, is_lost: bool = False) -> None:
        """Note what became of a field; ``is_lost``: v2beta1 cannot say or do it."""
        self.found = (*self.found, Change(where=path.text, what=what, is_lost=is_lost))

    def move(self, old: FieldPath, new: FieldPath, what: str = "") -> None:
        """Note that a field has another place now."""
        self._moved.append((old, new))
        self.add(old, f"is now {new.text}{what}")

    def moved(self, places: SourceLines) -> dict[tuple[str | int, ...], int]:
        """Return lines for the new places of fields that moved, so that faults found there name a line."""
        return {new.keys: places.lines[old.keys] for old, new in self._moved if old.keys in places.lines}
