"""The block ``gcc``: another compiler than the base's, for frameworks that were built with it."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import VERSION, needed
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Gcc:
    """Arguments of the block."""

    version: str = needed(VERSION)
    """Major, or major and minor of before gcc 5: ``4.9``."""


def halves(block: Gcc, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError
