"""The block ``mxnet``: MXNet's wheel."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks.block import Block
from ringleader.images.recipe_fields import VARIANT, VERSION, needed, text
from ringleader.images.stage_steps import BlockSteps, ImageContext


@dataclass(frozen=True, kw_only=True)
class Mxnet(Block):
    """Arguments of the block."""

    table = "mxnet"
    selects = (("mxnet", "version"), ("mxnet_variant", "variant"))
    framework = "mxnet"
    installed_by_pip = True
    python_packages = (("mxnet", "mxnet", "mxnet-cu90", "mxnet-cu112"),)

    version: str = needed(VERSION)
    variant: str = text(VARIANT)
    """``cu90``: the package ``mxnet-cu90``; empty: the one for CPUs."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return its wheel."""
        name = f"mxnet-{self.variant}" if self.variant else "mxnet"
        return image.installed(image.install(f"{name}=={self.version}", order=10))
