"""The block ``nccl``: a NCCL of the system, for Horovod and nccl-tests; PyTorch's wheel has its own."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import NAME, VERSION, needed, text
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Nccl:
    """Arguments of the block."""

    version: str = needed(VERSION)
    source: str = text(NAME, "apt", one_of=("apt", "build"))
    dev: bool = False
    """With headers, in the image too."""
    tests: bool = False
    """With nccl-tests, built in the build half."""


def halves(block: Nccl, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError
