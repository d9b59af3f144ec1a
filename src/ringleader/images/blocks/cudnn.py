"""The block ``cudnn``: cuDNN from NVIDIA's repository, for frameworks that do not bring their own."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import VERSION, needed
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Cudnn:
    """Arguments of the block."""

    version: str = needed(VERSION)
    dev: bool = False
    """With headers, in the image too."""


def halves(block: Cudnn, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError
