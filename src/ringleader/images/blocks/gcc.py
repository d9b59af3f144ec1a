"""The block ``gcc``: another compiler than the base's, for frameworks that were built with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ringleader.images.blocks.block import Block
from ringleader.images.instructions import Run, shell
from ringleader.images.recipe_fields import VERSION, needed
from ringleader.images.stage_steps import BlockSteps, ImageContext, StageSteps

PRIORITY = "100"
"""Above any that the distribution's own packages claim."""


@dataclass(frozen=True, kw_only=True)
class Gcc(Block):
    """Arguments of the block."""

    table = "gcc"
    selects = (("gcc", "version"),)

    version: str = needed(VERSION)
    """Major, or major and minor of before gcc 5: ``4.9``."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the compilers in the build stage."""
        return BlockSteps(build=self._compilers())

    def historical_steps(self, image: ImageContext) -> BlockSteps:
        """Return the compilers in the image, which compiles in itself, and in a stage that only compiles."""
        return image.in_both_stages(self._compilers())

    def _compilers(self) -> StageSteps:
        programs = (f"gcc-{self.version}", f"g++-{self.version}")
        preferred = tuple(
            shell("update-alternatives", "--install", link, link.rpartition("/")[2], program, PRIORITY)
            for link, program in (
                ("/usr/bin/gcc", f"/usr/bin/{programs[0]}"),
                ("/usr/bin/g++", f"/usr/bin/{programs[1]}"),
            )
        )
        why = "This compiler is the one that frameworks and their extensions are compiled with."
        return StageSteps(apt=programs, steps=(Run(commands=preferred, why=why),))

    def shell_checks(self, image: ImageContext) -> Iterator[str]:
        """Ask the compiler for its version."""
        yield f"check gcc gcc-{self.version} -dumpversion"
