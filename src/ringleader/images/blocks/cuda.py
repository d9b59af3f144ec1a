"""The block ``cuda``: CUDA from NVIDIA's images, below frameworks that do not bring their own."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks import historical
from ringleader.images.instructions import Env, Step
from ringleader.images.recipe_fields import VERSION, needed
from ringleader.images.stage_steps import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """Arguments of the block. The base is then one of NVIDIA's images of the same version."""

    version: str = needed(VERSION)


def halves(block: Cuda, setting: Setting) -> Halves:
    """Return nothing: libraries, paths and variables are in NVIDIA's images already."""
    if setting.historical:
        return historical.cuda(block, setting)
    return Halves()


def gpu_access(setting: Setting) -> tuple[Step, ...]:
    """Return what asks NVIDIA's runtime for GPUs and driver, where the base does not ask yet."""
    if setting.cuda or "cuda" in setting.blocks:
        return ()
    wanted = (("NVIDIA_VISIBLE_DEVICES", "all"), ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"))
    return (Env(variables=wanted),)
