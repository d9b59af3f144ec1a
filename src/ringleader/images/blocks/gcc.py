"""The block ``gcc``: another compiler than the base's, for frameworks that were built with it."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.instructions import Run, words
from ringleader.images.recipe_fields import VERSION, needed
from ringleader.images.stage_steps import Half, Halves, Setting

PRIORITY = "100"
"""Above any that the distribution's own packages claim."""


@dataclass(frozen=True, kw_only=True)
class Gcc:
    """Arguments of the block."""

    version: str = needed(VERSION)
    """Major, or major and minor of before gcc 5: ``4.9``."""


def halves(block: Gcc, setting: Setting) -> Halves:
    """Return the compilers: in the build half; historical images compile in the image itself."""
    half = Half(
        apt=(f"gcc-{block.version}", f"g++-{block.version}"),
        steps=(
            Run(
                commands=tuple(_preferred(name, block.version) for name in ("gcc", "g++")),
                why="This compiler is the one that frameworks and their extensions are compiled with.",
            ),
        ),
    )
    if not setting.historical:
        return Halves(build=half)
    return Halves(build=half if "tensorflow-source" in setting.blocks else Half(), runtime=half)


def _preferred(name: str, version: str) -> str:
    link, program = f"/usr/bin/{name}", f"/usr/bin/{name}-{version}"
    return words("update-alternatives", "--install", link, name, program, PRIORITY)
