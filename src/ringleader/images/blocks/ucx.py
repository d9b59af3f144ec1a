"""The block ``ucx``: the transport library below Open MPI and MPICH."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import NAME, VERSION, text
from ringleader.images.halves import Half, Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Ucx:
    """Arguments of the block."""

    version: str = text(VERSION)
    """Empty: what the base packages."""
    source: str = text(NAME, "base", one_of=("base", "build"))
    cuda: bool = False
    """With GPU memory; needs the block ``cuda`` and ``source = "build"``."""


def halves(block: Ucx, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    pin = f"={block.version}*" if block.version else ""
    return Halves(runtime=Half(apt=(f"libucx0{pin}", f"ucx-utils{pin}")))
