"""The block ``torch``: PyTorch's wheel."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import CONTEXT_PATH, VARIANT, VERSION, needed, text
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Torch:
    """Arguments of the block."""

    version: str = needed(VERSION)
    variant: str = text(VARIANT)
    """``cpu``, ``cu126``, … from PyTorch's own index; empty: the one that PyPI has."""
    torchvision: str = text(VERSION)
    """Empty: without torchvision."""
    wheels: str = text(CONTEXT_PATH)
    """Directory of the build context with the wheels; no index is asked for PyTorch then."""


def halves(block: Torch, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError
