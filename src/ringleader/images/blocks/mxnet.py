"""The block ``mxnet``: MXNet's wheel."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks.pip_installs import halves_of, install
from ringleader.images.recipe_fields import VARIANT, VERSION, needed, text
from ringleader.images.stage_steps import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Mxnet:
    """Arguments of the block."""

    version: str = needed(VERSION)
    variant: str = text(VARIANT)
    """``cu90``: the package ``mxnet-cu90``; empty: the one for CPUs."""


def halves(block: Mxnet, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    name = f"mxnet-{block.variant}" if block.variant else "mxnet"
    return halves_of(setting, install(setting, f"{name}=={block.version}", order=10))
