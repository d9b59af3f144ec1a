"""The block ``torch``: PyTorch's wheel."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks import historical
from ringleader.images.blocks.cuda import gpu_access
from ringleader.images.blocks.pip_installs import halves_of, install
from ringleader.images.recipe_fields import CONTEXT_PATH, VARIANT, VERSION, needed, text
from ringleader.images.stage_steps import Half, Halves, Setting

INDEX = "https://download.pytorch.org/whl/"


@dataclass(frozen=True, kw_only=True)
class Torch:
    """Arguments of the block."""

    version: str = needed(VERSION)
    variant: str = text(VARIANT)
    """``cpu``, ``cu126``, … from PyTorch's own index; empty: the one that PyPI has."""
    torchvision: str = text(VERSION)
    """Empty: without torchvision."""
    wheels: str = text(CONTEXT_PATH)
    """Directory of the build context with the wheels; no index is asked for PyTorch then."""

    @property
    def brings_cuda(self) -> bool:
        """Tell whether the wheel comes with CUDA's libraries."""
        return self.variant == "" or self.variant.startswith("cu")


def halves(block: Torch, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image.

    PyTorch's index has all that PyTorch needs: asking it alone keeps PyPI's wheel, with another CUDA, out.
    """
    if setting.historical:
        return historical.torch(block, setting)
    wanted = [f"torch=={block.version}"]
    if block.torchvision:
        wanted.append(f"torchvision=={block.torchvision}")
    index = f"{INDEX}{block.variant}" if block.variant else ""
    pip = install(setting, *wanted, order=10, index=index, wheels=block.wheels)
    env = gpu_access(setting) if block.brings_cuda else ()
    return halves_of(setting, pip, runtime=Half(steps=env))
