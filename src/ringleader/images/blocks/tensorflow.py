"""The block ``tensorflow``: TensorFlow's wheel."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import CONTEXT_PATH, VERSION, needed, text
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Tensorflow:
    """Arguments of the block."""

    version: str = needed(VERSION)
    gpu: bool = True
    """With CUDA: ``tensorflow[and-cuda]``, before 2.14 ``tensorflow-gpu`` where that was apart."""
    wheels: str = text(CONTEXT_PATH)
    """Directory of the build context with the wheels; no index is asked for TensorFlow then."""


def halves(block: Tensorflow, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError
