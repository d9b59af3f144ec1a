"""The blocks tensorflow, torch, mxnet and horovod: wheels, and what is compiled against them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ringleader.images.blocks.block import VENV, Block, BlockSteps, ImageContext, PipInstall, StageSteps
from ringleader.images.blocks.nvidia import gpu_access
from ringleader.images.instructions import Run, Step, shell
from ringleader.images.recipe import CONTEXT_PATH, NAME, VARIANT, VERSION, needed, text

LISTED = "/etc/ld.so.conf.d/nvidia-wheels.conf"


@dataclass(frozen=True, kw_only=True)
class Tensorflow(Block):
    """TensorFlow's wheel."""

    table = "tensorflow"
    framework = "tensorflow"
    python_packages = (("tensorflow", "tensorflow", "tensorflow-cpu", "tensorflow-gpu"),)

    version: str = needed(VERSION)
    gpu: bool = True
    """With CUDA: ``tensorflow[and-cuda]``, before 2.14 ``tensorflow-gpu`` where that was apart."""
    wheels: str = text(CONTEXT_PATH)
    """Directory of the build context with the wheels; no index is asked for TensorFlow then."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return its wheel, and what makes GPUs and CUDA's libraries known to it.

        TensorFlow 2.16 and 2.17 look for CUDA's libraries by name alone and run without GPUs where the linker
        does not know them (tensorflow/tensorflow#63362); the others find the same files.
        """
        name = "tensorflow[and-cuda]" if self.gpu else "tensorflow-cpu"
        pip = image.install(f"{name}=={self.version}", order=10, wheels=self.wheels)
        torch = image.blocks.get("torch")
        asked = torch is not None and torch.brings_cuda
        steps: tuple[Step, ...] = ()
        if self.gpu:
            listed = f"ls -d {VENV}/lib/python3*/site-packages/nvidia/*/lib > {LISTED}"
            why = "TensorFlow asks the linker for CUDA's libraries, which came as wheels."
            steps = (*(() if asked else gpu_access(image)), Run(commands=(listed, "ldconfig"), why=why))
        return BlockSteps(build=StageSteps(pip=pip), runtime=StageSteps(last=steps))


@dataclass(frozen=True, kw_only=True)
class Torch(Block):
    """PyTorch's wheel."""

    table = "torch"
    framework = "torch"
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

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return its wheel.

        PyTorch's index has all that it needs: asking it alone keeps PyPI's wheel, with another CUDA, out.
        """
        names = (("torch", self.version), ("torchvision", self.torchvision))
        wanted = tuple(f"{name}=={version}" for name, version in names if version)
        index = f"https://download.pytorch.org/whl/{self.variant}" if self.variant else ""
        pip = image.install(*wanted, order=10, index=index, wheels=self.wheels)
        env = gpu_access(image) if self.brings_cuda else ()
        return BlockSteps(build=StageSteps(pip=pip), runtime=StageSteps(steps=env))


@dataclass(frozen=True, kw_only=True)
class Mxnet(Block):
    """MXNet's wheel."""

    table = "mxnet"
    framework = "mxnet"
    python_packages = (("mxnet", "mxnet", "mxnet-cu90", "mxnet-cu112"),)

    version: str = needed(VERSION)
    variant: str = text(VARIANT)
    """``cu90``: the package ``mxnet-cu90``; empty: the one for CPUs."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return its wheel."""
        name = f"mxnet-{self.variant}" if self.variant else "mxnet"
        return BlockSteps(build=StageSteps(pip=image.install(f"{name}=={self.version}", order=10)))


WITH = {
    "tensorflow": "HOROVOD_WITH_TENSORFLOW",
    "torch": "HOROVOD_WITH_PYTORCH",
    "mxnet": "HOROVOD_WITH_MXNET",
}
"""Framework → the variable that makes Horovod's build compile for it."""
STUBS = "/usr/local/cuda/lib64/stubs"
"""A libcuda.so.1 without a driver behind it: frameworks load it to be asked for their flags."""
NO_DRIVER = "A machine that builds has no driver: CUDA's stubs stand in while Horovod asks the frameworks."
BUILD_TOOLS = ("packaging", "setuptools<81", "wheel")
"""What its setup.py imports; the last setuptools with pkg_resources."""
TELLS_FRAMEWORKS = (0, 13)
"""The first series that has to know which frameworks to compile for; there was only TensorFlow before."""
OPERATIONS = (0, 20)
"""The first one with one variable for all operations on GPUs, and with CMake."""


@dataclass(frozen=True, kw_only=True)
class Horovod(Block):
    """Horovod, compiled against the frameworks of the image."""

    table = "horovod"
    python_packages = (("horovod", "horovod"),)

    version: str = needed(VERSION)
    gpu_operations: str = text(NAME, "", one_of=("nccl", "mpi"))
    """What carries GPU tensors; empty: tensors go through the CPU."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return its compilation in the build stage, against the frameworks of the environment there."""
        series = tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])
        tools = ("build-essential", "cmake") if series >= OPERATIONS else ("build-essential",)
        pip = (*image.install(*BUILD_TOOLS, order=40), *self._installs(image, series))
        build = StageSteps(apt=(*tools, *_headers(image)), pip=pip)
        if self.gpu_operations and image.cuda:
            stubs = Run(commands=(shell("ldconfig", STUBS),), why=NO_DRIVER)
            without = Run(commands=("ldconfig",), why="The driver's own libcuda comes with the container.")
            build = replace(build, steps=(stubs,), last=(without,))
        return BlockSteps(build=build)

    def _installs(self, image: ImageContext, series: tuple[int, ...]) -> tuple[PipInstall, ...]:
        """Return its install with what its build asks for, by the names of its version."""
        variables = []
        if self.gpu_operations:
            name = "HOROVOD_GPU_OPERATIONS" if series >= OPERATIONS else "HOROVOD_GPU_ALLREDUCE"
            variables.append((name, self.gpu_operations.upper()))
        if series >= TELLS_FRAMEWORKS:
            frameworks = {block.framework for block in image.blocks.values()}
            variables += [(variable, "1") for one, variable in WITH.items() if one in frameworks]
        found = image.install(f"horovod=={self.version}", order=50)
        return tuple(replace(one, env=tuple(variables), options=("--no-build-isolation",)) for one in found)


def _headers(image: ImageContext) -> tuple[str, ...]:
    """Return the packages of the interpreter's and the MPI's headers."""
    python, mpi = image.blocks.get("python"), image.blocks.get("mpi")
    version = python.version if python is not None else ""
    headers = "python3-dev" if version in ("", image.base.python) else f"python{version}-dev"
    return (headers, f"lib{mpi.kind}-dev") if mpi is not None and mpi.source == "base" else (headers,)
