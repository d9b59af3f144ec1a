"""The block ``files``: a user's own files, variables and directory."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import CONTEXT_PATH, LINE, PATH, pairs, text
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Files:
    """Arguments of the block."""

    copy: tuple[tuple[str, str], ...] = pairs(PATH, CONTEXT_PATH)
    """Path in the build context → absolute path in the image."""
    env: tuple[tuple[str, str], ...] = pairs(LINE)
    """Variables of containers."""
    workdir: str = text(PATH)


def halves(block: Files, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError
