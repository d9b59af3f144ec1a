"""The block ``cudnn``: cuDNN from NVIDIA's repository, for frameworks that do not bring their own."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks import historical
from ringleader.images.recipe_fields import VERSION, needed
from ringleader.images.stage_steps import Half, Halves, Setting

BEFORE_CUDA_NAMES = ("5", "6", "7", "8")
"""Majors whose versions end with ``+cuda11.8``. Since 9 the packages' names tell CUDA's major."""


@dataclass(frozen=True, kw_only=True)
class Cudnn:
    """Arguments of the block."""

    version: str = needed(VERSION)
    dev: bool = False
    """With headers, in the image too."""


def halves(block: Cudnn, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image: headers only where something is compiled.

    NVIDIA's images, which have the repository, are the base: `image check` says where they are not.
    """
    if setting.historical:
        return historical.cudnn(block, setting)
    library, headers = _packages(block, setting)
    if block.dev:
        return Halves(runtime=Half(apt=(library, headers)))
    compiled = "horovod" in setting.blocks
    return Halves(build=Half(apt=(library, headers) if compiled else ()), runtime=Half(apt=(library,)))


def _packages(block: Cudnn, setting: Setting) -> tuple[str, str]:
    """Return the packages of the library and of its headers."""
    major = block.version.partition(".")[0]
    revision = block.version if "-" in block.version else f"{block.version}-1"
    if major not in BEFORE_CUDA_NAMES:
        cuda = setting.cuda.partition(".")[0]
        return f"libcudnn{major}-cuda-{cuda}={revision}", f"libcudnn{major}-dev-cuda-{cuda}={revision}"
    cuda = ".".join(setting.cuda.split(".")[:2])
    return f"libcudnn{major}={revision}+cuda{cuda}", f"libcudnn{major}-dev={revision}+cuda{cuda}"
