"""The block ``cudnn``: cuDNN from NVIDIA's repository, for frameworks that do not bring their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ringleader.images.blocks.block import Block, Conflict
from ringleader.images.blocks.nvidia_repository import historical_packages, no_cuda, revision_of
from ringleader.images.recipe_fields import VERSION, needed
from ringleader.images.stage_steps import BlockSteps, ImageContext, StageSteps

BEFORE_CUDA_NAMES = ("5", "6", "7", "8")
"""Majors whose versions end with ``+cuda11.8``. Since 9 the packages' names tell CUDA's major."""


@dataclass(frozen=True, kw_only=True)
class Cudnn(Block):
    """Arguments of the block."""

    table = "cudnn"
    selects = (("cudnn", "version"),)

    version: str = needed(VERSION)
    dev: bool = False
    """With headers, in the image too."""

    @property
    def major(self) -> str:
        """First number of its version: what is in the names of its packages and files."""
        return self.version.partition(".")[0]

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return its packages: headers only where something is compiled.

        NVIDIA's images, which have the repository, are the base: `image check` says where they are not.
        """
        library, headers = self._packages(image)
        if self.dev:
            return BlockSteps(runtime=StageSteps(apt=(library, headers)))
        compiled = (library, headers) if "horovod" in image.blocks else ()
        return BlockSteps(build=StageSteps(apt=compiled), runtime=StageSteps(apt=(library,)))

    def historical_steps(self, image: ImageContext) -> BlockSteps:
        """Return ``libcudnn7``, with its headers where something is compiled with them."""
        names = (f"libcudnn{self.major}", f"libcudnn{self.major}-dev")
        return historical_packages(self.table, self.version, names, image, with_headers=self.dev)

    def _packages(self, image: ImageContext) -> tuple[str, str]:
        """Return the packages of the library and of its headers."""
        major, revision = self.major, revision_of(self.version)
        if major not in BEFORE_CUDA_NAMES:
            cuda = image.cuda.partition(".")[0]
            return f"libcudnn{major}-cuda-{cuda}={revision}", f"libcudnn{major}-dev-cuda-{cuda}={revision}"
        cuda = ".".join(image.cuda.split(".")[:2])
        return f"libcudnn{major}={revision}+cuda{cuda}", f"libcudnn{major}-dev={revision}+cuda{cuda}"

    def historical_conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield that the base has no CUDA."""
        yield from no_cuda(self.table, blocks, compiled_in)
