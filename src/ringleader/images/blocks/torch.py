"""The block ``torch``: PyTorch's wheel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ringleader.images.blocks.block import Block
from ringleader.images.blocks.cuda import gpu_access
from ringleader.images.recipe_fields import CONTEXT_PATH, VARIANT, VERSION, needed, text
from ringleader.images.stage_steps import BlockSteps, ImageContext, PipInstall, StageSteps

INDEX = "https://download.pytorch.org/whl/"
HISTORICAL_PAGE = "https://download.pytorch.org/whl/torch_stable.html"
"""Where PyTorch before 1.10 has its wheels for other CUDA versions than PyPI's: a page of links, no index."""


@dataclass(frozen=True, kw_only=True)
class Torch(Block):
    """Arguments of the block."""

    table = "torch"
    selects = (("torch", "version"), ("torch_variant", "variant"), ("torchvision", "torchvision"))
    framework = "torch"
    installed_by_pip = True
    python_packages = (("torch", "torch"),)

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

    def _requirements(self, local: str = "") -> tuple[str, ...]:
        names = (("torch", self.version), ("torchvision", self.torchvision))
        return tuple(f"{name}=={version}{local}" for name, version in names if version)

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return its wheel.

        PyTorch's index has all that it needs: asking it alone keeps PyPI's wheel, with another CUDA, out.
        """
        index = f"{INDEX}{self.variant}" if self.variant else ""
        pip = image.install(*self._requirements(), order=10, index=index, wheels=self.wheels)
        env = gpu_access(image) if self.brings_cuda else ()
        return image.installed(pip, StageSteps(steps=env))

    def historical_steps(self, image: ImageContext) -> BlockSteps:
        """Return PyTorch and torchvision of the same variant."""
        wanted = self._requirements(f"+{self.variant}" if self.variant else "")
        links = image.wheels(self.wheels)
        options = ("--find-links", HISTORICAL_PAGE) if self.variant and not links else ()
        pip = PipInstall(requirements=wanted, find_links=links, order=10, options=options)
        return image.installed((pip,))

    def shell_checks(self, image: ImageContext) -> Iterator[str]:
        """Import torchvision."""
        if self.torchvision:
            yield f"module torchvision {self.torchvision}"
