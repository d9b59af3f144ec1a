"""The block ``cuda``: CUDA from NVIDIA's images, below frameworks that do not bring their own."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks.block import Block
from ringleader.images.blocks.nvidia_repository import historical_repositories
from ringleader.images.instructions import Env, Step
from ringleader.images.recipe_fields import VERSION, needed
from ringleader.images.stage_steps import BlockSteps, ImageContext, StageSteps


@dataclass(frozen=True, kw_only=True)
class Cuda(Block):
    """Arguments of the block. The base is then one of NVIDIA's images of the same version."""

    table = "cuda"
    selects = (("cuda", "version"),)

    version: str = needed(VERSION)

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return nothing: libraries, paths and variables are in NVIDIA's images already."""
        return BlockSteps()

    def historical_steps(self, image: ImageContext) -> BlockSteps:
        """Return the repositories of NVIDIA with the keys that sign them now, before every other package."""
        return image.in_both_stages(StageSteps(before=historical_repositories(self.table, image)))


def gpu_access(image: ImageContext) -> tuple[Step, ...]:
    """Return what asks NVIDIA's runtime for GPUs and driver, where the base does not ask yet."""
    if image.cuda or "cuda" in image.blocks:
        return ()
    wanted = (("NVIDIA_VISIBLE_DEVICES", "all"), ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"))
    return (Env(variables=wanted),)
