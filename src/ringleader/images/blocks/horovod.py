"""The block ``horovod``: Horovod, compiled against the frameworks of the image."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ringleader.images.blocks.block import Block
from ringleader.images.instructions import Run, shell
from ringleader.images.recipe_fields import NAME, VERSION, needed, text
from ringleader.images.stage_steps import BlockSteps, ImageContext, PipInstall, StageSteps

FRAMEWORKS = {
    "tensorflow": "HOROVOD_WITH_TENSORFLOW",
    "torch": "HOROVOD_WITH_PYTORCH",
    "mxnet": "HOROVOD_WITH_MXNET",
}
"""Framework → the variable by which Horovod's build is told to compile for it."""
STUBS = "/usr/local/cuda/lib64/stubs"
"""A libcuda.so.1 without a driver behind it: frameworks load it to be asked for their flags."""
BUILD_TOOLS = ("packaging", "setuptools<81", "wheel")
"""What its setup.py imports; the last setuptools with pkg_resources."""
WITH = (0, 13)
"""The first series that is told which frameworks to compile for; there was only TensorFlow before."""
OPERATIONS = (0, 20)
"""The first one with one variable for all operations on GPUs, and with CMake."""


@dataclass(frozen=True, kw_only=True)
class Horovod(Block):
    """Arguments of the block."""

    table = "horovod"
    selects = (("horovod", "version"), ("horovod_gpu", "gpu_operations"))
    installed_by_pip = True
    python_packages = (("horovod", "horovod"),)

    version: str = needed(VERSION)
    gpu_operations: str = text(NAME, "", one_of=("nccl", "mpi"))
    """What carries GPU tensors; empty: tensors go through the CPU."""

    @property
    def series(self) -> tuple[int, ...]:
        """The first two numbers of its version."""
        return tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return its compilation in the build stage, against the frameworks of the environment there."""
        here = tuple(
            replace(one, options=(*one.options, "--no-build-isolation")) for one in self._installs(image)
        )
        build = self._compilation(image, (*image.install(*BUILD_TOOLS, order=40), *here))
        return BlockSteps(build=replace(build, apt=(*build.apt, *_headers(image))))

    def historical_steps(self, image: ImageContext) -> BlockSteps:
        """Return its compilation in the image itself."""
        return BlockSteps(runtime=self._compilation(image, self._installs(image)))

    def _compilation(self, image: ImageContext, pip: tuple[PipInstall, ...]) -> StageSteps:
        apt = ("build-essential", "cmake") if self.series >= OPERATIONS else ("build-essential",)
        if not (self.gpu_operations and image.cuda):
            return StageSteps(apt=apt, pip=pip)
        why = "A machine that builds has no driver: CUDA's stubs stand in while Horovod asks the frameworks."
        stubs = Run(commands=(shell("ldconfig", STUBS),), why=why)
        without = Run(commands=("ldconfig",), why="The driver's own libcuda comes with the container.")
        return StageSteps(apt=apt, pip=pip, steps=(stubs,), last=(without,))

    def _installs(self, image: ImageContext) -> tuple[PipInstall, ...]:
        """Return its install with what its build asks for, by the names of its version."""
        variables = []
        if self.gpu_operations:
            name = "HOROVOD_GPU_OPERATIONS" if self.series >= OPERATIONS else "HOROVOD_GPU_ALLREDUCE"
            variables.append((name, self.gpu_operations.upper()))
        if self.series >= WITH:
            variables += [(FRAMEWORKS[one], "1") for one in _frameworks(image)]
        found = image.install(f"horovod=={self.version}", order=50)
        return tuple(replace(one, env=tuple(variables)) for one in found)

    def shell_checks(self, image: ImageContext) -> Iterator[str]:
        """Import it, and what it was compiled for."""
        yield f"module horovod {self.version}"
        for module in _frameworks(image):
            yield f'check horovod.{module} {{python}} -c "import horovod.{module}"'


def _frameworks(image: ImageContext) -> tuple[str, ...]:
    """Return the frameworks of the image that Horovod knows."""
    found = {block.framework for block in image.blocks.values()}
    return tuple(one for one in FRAMEWORKS if one in found)


def _headers(image: ImageContext) -> tuple[str, ...]:
    """Return the packages of the interpreter's and the MPI's headers; historical images have them anyway."""
    python, mpi = image.blocks.get("python"), image.blocks.get("mpi")
    version = python.version if python is not None else ""
    own = version in ("", image.base.python)
    headers = "python3-dev" if own else f"python{version}-dev"
    return (headers, f"lib{mpi.kind}-dev") if mpi is not None and mpi.source == "base" else (headers,)
