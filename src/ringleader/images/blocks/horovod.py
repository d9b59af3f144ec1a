"""The block ``horovod``: Horovod, compiled against the frameworks of the image."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import NAME, VERSION, needed, text
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Horovod:
    """Arguments of the block."""

    version: str = needed(VERSION)
    gpu_operations: str = text(NAME, "", one_of=("nccl", "mpi"))
    """What carries GPU tensors; empty: tensors go through the CPU."""


def halves(block: Horovod, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError
