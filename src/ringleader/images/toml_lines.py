"""Which line of a TOML text has a key, for messages: the standard library's parser does not tell. Pure."""

from __future__ import annotations

import re

HEADER = re.compile(r"^\s*\[\s*([A-Za-z0-9_.\" -]+?)\s*\]")
KEY = re.compile(
    r"^\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)
PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+)")


class Lines:
    """Where the keys of one text are. What looks like a key inside a long string gives a wrong line."""

    def __init__(self, text: str, name: str) -> None:
        """Find the line of each table and key; the first one counts."""
        self.name = name
        self._found: dict[tuple[str, ...], str] = {}
        self._whole: set[tuple[str, ...]] = set()
        table: tuple[str, ...] = ()
        for number, line in enumerate(text.split("\n"), 1):
            header, key = HEADER.match(line), KEY.match(line)
            if header:
                table = _parts(header[1])
            path = table if header else (*table, *_parts(key[1])) if key else ()
            for end in range(len(path) if header else len(table) + 1, len(path) + 1):
                self._found.setdefault(path[:end], f"{name}:{number}")

    def told(self, path: tuple[str, ...], option: str, *, whole: bool = False) -> None:
        """Remember that a key came from the command line; ``whole``: the option says which key it is."""
        if whole:
            self._whole.add(path)
        for end in range(len(path), 0, -1):
            if end == len(path) or path[:end] not in self._found:
                self._found[path[:end]] = option

    def where(self, path: tuple[str, ...]) -> str:
        """Return ``file:line key``; where the key itself is not found, the line of the table that has it."""
        if path in self._whole:
            return self._found[path]
        for end in range(len(path), 0, -1):
            if path[:end] in self._found:
                return f"{self._found[path[:end]]} {'.'.join(path)}"
        return f"{self.name} {'.'.join(path)}" if path else self.name


def _parts(key: str) -> tuple[str, ...]:
    return tuple(next(filter(None, match.groups()), "") for match in PART.finditer(key))
