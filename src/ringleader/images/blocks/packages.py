"""The block ``packages``: what a user's script needs besides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ringleader.images.blocks.block import Block, Conflict, no_python
from ringleader.images.instructions import Copy, Step
from ringleader.images.recipe_fields import APT, CONTEXT_PATH, NAME, REQUIREMENT, text, texts
from ringleader.images.selection import Selection
from ringleader.images.stage_steps import BlockSteps, ImageContext, PipInstall, StageSteps

LOCK = "/opt/build/requirements.lock"
"""Where the lock file lies while pip reads it."""


@dataclass(frozen=True, kw_only=True)
class Packages(Block):
    """Arguments of the block."""

    table = "packages"

    apt: tuple[str, ...] = texts(APT)
    build_apt: tuple[str, ...] = texts(APT)
    """Only for the build stage: compilers and headers that packages of pip need."""
    pip: tuple[str, ...] = texts(REQUIREMENT)
    conda: tuple[str, ...] = texts(NAME)
    """Only where ``python.source`` is ``conda``."""
    lock: str = text(CONTEXT_PATH)
    """Requirements with hashes (``ringleader image lock``): pip installs exactly these and nothing else."""
    wheels: str = text(CONTEXT_PATH)
    """Directory of the build context with all wheels that the image needs; no index is asked then."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the packages: those of the lock file alone, where there is one."""
        steps: tuple[Step, ...] = ()
        pip = image.install(*self.pip, order=90) if self.pip else ()
        if self.lock:
            steps = (Copy(sources=(self.lock,), target=LOCK),)
            options = ("--require-hashes", "--no-deps", "--requirement", LOCK)
            pip = (PipInstall(requirements=(), options=options, find_links=self.wheels, order=10),)
        build = StageSteps(apt=self.build_apt, steps=steps, pip=pip)
        return BlockSteps(build=build, runtime=StageSteps(apt=self.apt))

    def historical_steps(self, image: ImageContext) -> BlockSteps:
        """Return the packages; pins of pip come before the frameworks (10), which would bring newer ones."""
        pip = (PipInstall(requirements=self.pip, find_links=self.wheels, order=5),) if self.pip else ()
        in_image = StageSteps(apt=(*self.apt, *self.build_apt), pip=pip)
        return image.in_both_stages(in_image, StageSteps(apt=self.build_apt))

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield packages of a conda that is not there."""
        if self.conda and getattr(blocks.get("python"), "source", "") != "conda":
            yield Conflict(
                path=("packages", "conda"),
                what="there is no conda in the image",
                hint='write source = "conda" below [python], or take packages of pip',
            )

    def historical_conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield what only modern images can have."""
        if self.pip and "python" not in blocks:
            yield no_python(self.table)
        if self.conda:
            what = "there is no conda in the image"
            yield Conflict(path=("packages", "conda"), what=what, hint="packages.pip")
        if self.lock:
            what = "the pip of historical images is told versions, not hashes"
            hint = 'packages.pip = ["numpy==1.14.6", …]'
            yield Conflict(path=("packages", "lock"), what=what, hint=hint)

    def choose(self, selection: Selection) -> Selection:
        """Choose the names of apt's packages, and the lock file."""
        names = tuple(name.partition("=")[0] for name in self.apt)
        return replace(selection, apt=names, lock=self.lock)
