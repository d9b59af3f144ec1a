"""The block ``tensorflow``: TensorFlow's wheel."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks.block import Block
from ringleader.images.blocks.cuda import gpu_access
from ringleader.images.instructions import Run, Step
from ringleader.images.recipe_fields import CONTEXT_PATH, VERSION, needed, text
from ringleader.images.selection import Selection
from ringleader.images.stage_steps import VENV, BlockSteps, ImageContext, PipInstall, StageSteps

LISTED = "/etc/ld.so.conf.d/nvidia-wheels.conf"


@dataclass(frozen=True, kw_only=True)
class Tensorflow(Block):
    """Arguments of the block."""

    table = "tensorflow"
    selects = (("tensorflow", "version"), ("tensorflow_gpu", "gpu"))
    framework = "tensorflow"
    installed_by_pip = True
    python_packages = (("tensorflow", "tensorflow", "tensorflow-cpu", "tensorflow-gpu"),)

    version: str = needed(VERSION)
    gpu: bool = True
    """With CUDA: ``tensorflow[and-cuda]``, before 2.14 ``tensorflow-gpu`` where that was apart."""
    wheels: str = text(CONTEXT_PATH)
    """Directory of the build context with the wheels; no index is asked for TensorFlow then."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return its wheel, and what makes GPUs and CUDA's libraries known to it."""
        name = "tensorflow[and-cuda]" if self.gpu else "tensorflow-cpu"
        pip = image.install(f"{name}=={self.version}", order=10, wheels=self.wheels)
        torch = image.blocks.get("torch")
        asked = torch is not None and torch.brings_cuda
        steps: tuple[Step, ...] = ()
        if self.gpu:
            steps = (*(() if asked else gpu_access(image)), _libraries_known())
        return image.installed(pip, StageSteps(last=steps))

    def historical_steps(self, image: ImageContext) -> BlockSteps:
        """Return ``tensorflow-gpu``: until 2.1 GPUs had a package of their own."""
        name = "tensorflow-gpu" if self.gpu else "tensorflow"
        links = image.wheels(self.wheels)
        pip = PipInstall(requirements=(f"{name}=={self.version}",), find_links=links, order=10)
        return image.installed((pip,))

    def choose(self, selection: Selection) -> Selection:
        """Choose its version, unless it is compiled."""
        return selection if selection.bazel else super().choose(selection)


def _libraries_known() -> Run:
    """Return what makes CUDA's libraries of the wheels known to the linker.

    TensorFlow 2.16 and 2.17 look for them by name alone and go on without GPUs where the linker does not know
    them (tensorflow/tensorflow#63362); the others find the same files.
    """
    return Run(
        commands=(f"ls -d {VENV}/lib/python3*/site-packages/nvidia/*/lib > {LISTED}", "ldconfig"),
        why="TensorFlow asks the linker for CUDA's libraries, which came as wheels.",
    )
