"""What a block gives to an image: steps of the stage that builds, and of the image itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ringleader.images.instructions import Step
from ringleader.images.tables.bases import Base

BUILD = "build"
"""Name of the stage that compiles and installs; nothing of it but what is copied reaches the image."""
VENV = "/opt/venv"
"""The virtual environment of modern images: made in the build stage, copied whole into the image."""


@dataclass(frozen=True, kw_only=True)
class PipInstall:
    """Packages that pip installs. Installs with the same index and the same options become one call."""

    requirements: tuple[str, ...]
    index: str = ""
    """URL of the only index to ask; empty: the default one."""
    find_links: str = ""
    """Directory of wheels in the build context; only it is asked then, no index."""
    order: int = 50
    """Calls are made in this order: frameworks (10), what depends on them (50), the user's own (90)."""
    options: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    """Variables of this call only, such as what a build from source asks for."""


@dataclass(frozen=True, kw_only=True)
class StageSteps:
    """What one block does in one stage."""

    apt: tuple[str, ...] = ()
    """Debian packages, possibly ``name=version``: all blocks' packages of a stage are one apt-get call."""
    apt_options: tuple[str, ...] = ()
    """Such as ``--allow-downgrades``, ``--allow-change-held-packages`` where pinned packages need them."""
    before: tuple[Step, ...] = ()
    """Steps before that apt-get call: keys and lists of further repositories."""
    pip: tuple[PipInstall, ...] = ()
    steps: tuple[Step, ...] = ()
    """Steps after it."""
    last: tuple[Step, ...] = ()
    """Steps after those of all blocks: what an image ends with (ldconfig, self-test, user)."""


@dataclass(frozen=True, kw_only=True)
class BlockSteps:
    """What one block does. One that only installs packages does nothing in the stage that builds."""

    build: StageSteps = field(default_factory=StageSteps)
    runtime: StageSteps = field(default_factory=StageSteps)


@dataclass(frozen=True, kw_only=True)
class ImageContext:
    """What a block may know of the image that it becomes part of."""

    base: Base
    """The operating system below, by the tables."""
    blocks: Mapping[str, Any]
    """Name → block, of every block of the recipe, with defaults filled in."""
    historical: bool = False
    """True: an image as it was then. Packages go into the system's Python, in one root account."""
    python: str = f"{VENV}/bin/python"
    """The interpreter whose pip installs, and that runs training scripts."""
    machine: str = "x86_64"
    """What the image is for, as wheels name it: ``x86_64``, ``aarch64``."""
    cuda: str = ""
    """CUDA version of the image, such as ``12.8``; empty: none, or only what wheels bring."""

    @property
    def compiles_apart(self) -> bool:
        """Whether a historical image has a stage that only compiles."""
        return any(block.compiles_apart for block in self.blocks.values())

    @property
    def python_version(self) -> str:
        """Major and minor version of the interpreter."""
        block = self.blocks.get("python")
        version = block.version if block is not None else ""
        return ".".join((version or self.base.python).split(".")[:2])

    def wheels(self, own: str = "") -> str:
        """Return the directory of wheels for a block: its own, else the one with every wheel of the image.

        So an image can be made without any index.
        """
        packages = self.blocks.get("packages")
        return own or (str(packages.wheels) if packages is not None else "")

    def install(
        self, *requirements: str, order: int, index: str = "", wheels: str = ""
    ) -> tuple[PipInstall, ...]:
        """Return the install of some packages; nothing where a lock file already names every package."""
        packages = self.blocks.get("packages")
        if packages is not None and packages.lock:
            return ()
        links = self.wheels(wheels)
        index = "" if links else index
        return (PipInstall(requirements=requirements, index=index, find_links=links, order=order),)

    def installed(self, pip: tuple[PipInstall, ...], runtime: StageSteps | None = None) -> BlockSteps:
        """Return these installs in the build stage, in historical images in the image itself."""
        runtime = runtime or StageSteps()
        if not self.historical:
            return BlockSteps(build=StageSteps(pip=pip), runtime=runtime)
        return BlockSteps(runtime=replace(runtime, pip=pip))

    def in_both_stages(self, image: StageSteps, build: StageSteps | None = None) -> BlockSteps:
        """Return a historical image's steps, and ``build`` (or the same) for a stage that only compiles."""
        return BlockSteps(build=(build or image) if self.compiles_apart else StageSteps(), runtime=image)
