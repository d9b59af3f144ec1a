"""The block ``horovod``: Horovod, compiled against the frameworks of the image."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ringleader.images.blocks.pip_installs import install
from ringleader.images.instructions import Run, Step, words
from ringleader.images.recipe_fields import NAME, VERSION, needed, text
from ringleader.images.stage_steps import Half, Halves, PipInstall, Setting

FRAMEWORKS = (
    ("TENSORFLOW", ("tensorflow", "tensorflow-source")),
    ("PYTORCH", ("torch",)),
    ("MXNET", ("mxnet",)),
)
STUBS = "/usr/local/cuda/lib64/stubs"
"""A libcuda.so.1 without a driver behind it: frameworks load it to be asked for their flags."""
BUILD_TOOLS = ("packaging", "setuptools<81", "wheel")
"""What its setup.py imports; the last setuptools with pkg_resources."""
WITH = (0, 13)
"""The first series that is told which frameworks to compile for; there was only TensorFlow before."""
OPERATIONS = (0, 20)
"""The first one with one variable for all operations on GPUs, and with CMake."""


@dataclass(frozen=True, kw_only=True)
class Horovod:
    """Arguments of the block."""

    version: str = needed(VERSION)
    gpu_operations: str = text(NAME, "", one_of=("nccl", "mpi"))
    """What carries GPU tensors; empty: tensors go through the CPU."""


def halves(block: Horovod, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image. It is compiled where the frameworks are."""
    series = _series(block.version)
    modern = not setting.historical
    apt = ("build-essential", "cmake") if series >= OPERATIONS else ("build-essential",)
    with_stubs = bool(block.gpu_operations) and bool(setting.cuda)
    half = Half(
        apt=(*apt, _python_headers(setting), *_mpi_headers(setting)) if modern else apt,
        pip=_installs(block, setting),
        steps=(_stubs(),) if with_stubs else (),
        last=(_no_stubs(),) if with_stubs else (),
    )
    return Halves(build=half) if modern else Halves(runtime=half)


def _installs(block: Horovod, setting: Setting) -> tuple[PipInstall, ...]:
    """Return its install in the environment itself: it is compiled against the frameworks there."""
    variables = _variables(block, setting)
    found = install(setting, f"horovod=={block.version}", order=50)
    if setting.historical:
        return tuple(replace(one, env=variables) for one in found)
    here = tuple(replace(one, env=variables, options=(*one.options, "--no-build-isolation")) for one in found)
    return (*install(setting, *BUILD_TOOLS, order=40), *here)


def _python_headers(setting: Setting) -> str:
    """Return the package of the interpreter's headers; historical images have them anyway."""
    python = setting.blocks.get("python")
    version = python.version if python is not None else ""
    own = version in ("", setting.base.python)
    return "python3-dev" if own else f"python{version}-dev"


def _mpi_headers(setting: Setting) -> tuple[str, ...]:
    mpi = setting.blocks.get("mpi")
    if mpi is None or mpi.source != "base":
        return ()
    return (f"lib{mpi.kind}-dev",)


def _series(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _variables(block: Horovod, setting: Setting) -> tuple[tuple[str, str], ...]:
    """Return what Horovod's build asks for, by the names of its version."""
    series = _series(block.version)
    variables = []
    if block.gpu_operations:
        name = "HOROVOD_GPU_OPERATIONS" if series >= OPERATIONS else "HOROVOD_GPU_ALLREDUCE"
        variables.append((name, block.gpu_operations.upper()))
    if series >= WITH:
        variables += [
            (f"HOROVOD_WITH_{name}", "1")
            for name, blocks in FRAMEWORKS
            if any(one in setting.blocks for one in blocks)
        ]
    return tuple(variables)


def _stubs() -> Step:
    return Run(
        commands=(words("ldconfig", STUBS),),
        why="A machine that builds has no driver: CUDA's stubs stand in while Horovod asks the frameworks.",
    )


def _no_stubs() -> Step:
    return Run(commands=("ldconfig",), why="The driver's own libcuda comes with the container.")
