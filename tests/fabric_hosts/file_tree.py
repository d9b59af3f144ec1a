"""Files and links as values, to be written below a directory."""

import os
from collections.abc import Mapping
from pathlib import Path

UNREADABLE = None
"""Content of a file on which the kernel answers EINVAL: a directory stands for it."""


class FileTree:
    """Files by path below the root; ``write`` makes them."""

    def __init__(self) -> None:
        self.files: dict[str, str | bytes | None] = {}
        self.links: dict[str, str] = {}

    def file(self, path: str, content: str | bytes | int | None = "") -> None:
        self.files[path] = str(content) if isinstance(content, int) else content

    def all(self, place: str, contents: Mapping[str, object]) -> None:
        """Add several files of one directory."""
        for name, content in contents.items():
            self.file(f"{place}/{name}", content if isinstance(content, bytes | None) else str(content))

    def link(self, path: str, target: str) -> None:
        self.links[path] = os.path.relpath(target, os.path.dirname(path))

    def write(self, root: Path) -> None:
        """Write all of it."""
        made = set()
        for path, content in self.files.items():
            place = root / path
            if place.parent not in made:
                place.parent.mkdir(parents=True, exist_ok=True)
                made.add(place.parent)
            if content is None:
                place.mkdir()
            elif isinstance(content, bytes):
                place.write_bytes(content)
            else:
                place.write_text(f"{content}\n")
                if content.startswith("#!"):
                    place.chmod(0o755)
        for path, target in self.links.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).symlink_to(target)
