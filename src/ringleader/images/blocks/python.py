"""The block ``python``: the interpreter, and where packages are installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ringleader.images.blocks import historical_selftest
from ringleader.images.blocks.block import Block, Conflict
from ringleader.images.blocks.downloads import PLACE, TOOLS, Project, fetched
from ringleader.images.instructions import Copy, Env, Run, shell
from ringleader.images.recipe_fields import NAME, VERSION, text
from ringleader.images.stage_steps import (
    BUILD,
    VENV,
    BlockSteps,
    ImageContext,
    PipInstall,
    StageSteps,
)

PATH = Env(variables=(("PATH", f"{VENV}/bin:${{PATH}}"),))
CONDA = "/opt/conda"
HERE = Copy(sources=(VENV,), target=f"{VENV}/", stage=BUILD)
MINIFORGE = Project(
    name="miniforge",
    title="Miniforge",
    url="https://github.com/conda-forge/miniforge/releases/download/{version}/Miniforge3-{version}-Linux-{system}.sh",
    source="the release's own .sha256 file, as others pin it",
    sha256={
        "26.3.2-3": "848194851a98903134187fbb4ab50efe87b003e0c0f808f97644b7524a62bf2c",
    },
)
MINIFORGE_ARM = "2c113a69297e612b01ca0f320c22a3107a11f2ab9b573d79ac868a175945ce29"
"""Checksum of the same release for ``aarch64``."""
HISTORICAL_PIP = ("pip==20.3.4", "setuptools==44.1.1", "wheel==0.37.1")
"""The last for Python 2.7 and 3.5. The base's pip takes the newest package, whatever Python it is for."""


@dataclass(frozen=True, kw_only=True)
class Python(Block):
    """Arguments of the block."""

    table = "python"
    selects = (("python", "version"), ("python_source", "source"))
    projects = (MINIFORGE,)

    version: str = text(VERSION)
    """Empty: what the base packages."""
    source: str = text(NAME, "base", one_of=("base", "conda"))
    """``conda``: Miniforge's, for a version that the base lacks."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return an environment of its own: of conda-forge, or of the base's Python.

        PEP 668: the system's own packages are apt's alone.
        """
        if self.source == "conda":
            return self._conda(image)
        own = self.version in ("", image.base.python)
        name = "python3" if own else f"python{self.version}"
        made = Run(
            commands=(shell(name, "-m", "venv", VENV),),
            why="Packages of pip go into an environment of their own, copied whole into the image.",
        )
        return BlockSteps(
            build=StageSteps(apt=(name, f"{name}-venv"), steps=(made, PATH)),
            runtime=StageSteps(apt=("ca-certificates", name), steps=(HERE, PATH)),
        )

    def _conda(self, image: ImageContext) -> BlockSteps:
        """Return an environment of conda-forge at the same place, with the packages of conda."""
        checksum = MINIFORGE_ARM if image.machine == "aarch64" else ""
        release = MINIFORGE.release(sha256=checksum, system=image.machine)
        installer = f"{PLACE}/miniforge.sh"
        packages = image.blocks.get("packages")
        wanted = (f"python={self.version}" if self.version else "python", "pip")
        create = ("create", "--yes", "--prefix", VENV, "--override-channels", "--channel", "conda-forge")
        made = Run(
            commands=(
                *fetched(release, installer),
                shell("bash", installer, "-b", "-p", CONDA),
                shell(f"{CONDA}/bin/conda", *create, *wanted, *(packages.conda if packages else ())),
                shell("rm", "-rf", CONDA, installer),
            ),
            why=release.why,
        )
        return BlockSteps(
            build=StageSteps(apt=TOOLS, steps=(made, PATH)),
            runtime=StageSteps(apt=("ca-certificates",), steps=(HERE, PATH)),
        )

    def historical_steps(self, image: ImageContext) -> BlockSteps:
        """Return the system's interpreter with headers and pip, as ``python``, and the image's self-test."""
        version = ".".join(self.version.split(".")[:2])
        name = f"python{version}" if version else "python3"
        family = "python" if version.startswith("2") else "python3"
        link = shell("ln", "-sf", image.python, "/usr/bin/python")
        common = StageSteps(
            apt=(name, f"{family}-pip", f"{family}-setuptools"),
            steps=(Run(commands=(link,), why="Scripts of that time say python."),),
            pip=(PipInstall(requirements=HISTORICAL_PIP, find_links=image.wheels(), order=0),),
        )
        compilers = replace(common, apt=(*common.apt, "build-essential", f"{name}-dev"))
        in_image = common if image.compiles_apart else compilers
        return image.in_both_stages(replace(in_image, last=(historical_selftest.step(image),)), compilers)

    def historical_conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield every Python but the system's."""
        if self.source != "base":
            what = "historical images have the system's Python"
            yield Conflict(path=("python", "source"), what=what, hint="a base that packages the version")

    def shell_checks(self, image: ImageContext) -> Iterator[str]:
        """Ask the interpreter for its version."""
        yield "check Python {python} --version"
