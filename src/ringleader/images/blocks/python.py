"""The block ``python``: the interpreter, and where packages are installed."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import NAME, VERSION, text
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Python:
    """Arguments of the block."""

    version: str = text(VERSION)
    """Empty: what the base packages."""
    source: str = text(NAME, "base", one_of=("base", "conda"))
    """``conda``: Miniforge's, for a version that the base lacks."""


def halves(block: Python, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError
