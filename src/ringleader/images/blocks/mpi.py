"""The block ``mpi``: the MPI that starts the ranks."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import NAME, VERSION, text
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Mpi:
    """Arguments of the block."""

    kind: str = text(NAME, "openmpi", one_of=("openmpi", "mpich"))
    version: str = text(VERSION)
    """Empty: what the base packages."""
    source: str = text(NAME, "base", one_of=("base", "build"))
    """``build``: from the project's release, with the recipe's UCX, libfabric and CUDA."""


def halves(block: Mpi, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError
