"""The block ``cuda``: CUDA from NVIDIA's images, below frameworks that do not bring their own."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import VERSION, needed
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """Arguments of the block. The base is then one of NVIDIA's images of the same version."""

    version: str = needed(VERSION)


def halves(block: Cuda, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError
