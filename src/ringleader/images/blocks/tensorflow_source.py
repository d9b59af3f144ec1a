"""The block ``tensorflow-source``: TensorFlow compiled in the build half, its wheel handed to the image."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import VERSION, needed, text, texts
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class TensorflowSource:
    """Arguments of the block."""

    version: str = needed(VERSION)
    verbs: bool = False
    """``TF_NEED_VERBS=1``: the gRPC+verbs server."""
    gdr: bool = False
    """``TF_NEED_GDR=1``: the gRPC+GDR server."""
    bazel: str = needed(VERSION)
    compute: tuple[str, ...] = texts(VERSION, ("3.5", "6.0", "7.0"))
    """CUDA compute capabilities that are compiled in."""
    nccl: str = text(VERSION)


def halves(block: TensorflowSource, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError
