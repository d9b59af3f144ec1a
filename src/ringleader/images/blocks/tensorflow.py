"""The block ``tensorflow``: TensorFlow's wheel."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks import historical
from ringleader.images.blocks.cuda import gpu_access
from ringleader.images.blocks.pip_installs import halves_of, install
from ringleader.images.instructions import Run, Step
from ringleader.images.recipe_fields import CONTEXT_PATH, VERSION, needed, text
from ringleader.images.stage_steps import VENV, Half, Halves, Setting

LISTED = "/etc/ld.so.conf.d/nvidia-wheels.conf"


@dataclass(frozen=True, kw_only=True)
class Tensorflow:
    """Arguments of the block."""

    version: str = needed(VERSION)
    gpu: bool = True
    """With CUDA: ``tensorflow[and-cuda]``, before 2.14 ``tensorflow-gpu`` where that was apart."""
    wheels: str = text(CONTEXT_PATH)
    """Directory of the build context with the wheels; no index is asked for TensorFlow then."""


def halves(block: Tensorflow, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    if setting.historical:
        return historical.tensorflow(block, setting)
    name = "tensorflow[and-cuda]" if block.gpu else "tensorflow-cpu"
    pip = install(setting, f"{name}=={block.version}", order=10, wheels=block.wheels)
    torch = setting.blocks.get("torch")
    asked = torch is not None and torch.brings_cuda
    steps: tuple[Step, ...] = ()
    if block.gpu:
        steps = (*(() if asked else gpu_access(setting)), _libraries_known())
    return halves_of(setting, pip, runtime=Half(last=steps))


def _libraries_known() -> Run:
    """Return what makes CUDA's libraries of the wheels known to the linker.

    TensorFlow 2.16 and 2.17 look for them by name alone and go on without GPUs where the linker does not know
    them (tensorflow/tensorflow#63362); the others find the same files.
    """
    return Run(
        commands=(f"ls -d {VENV}/lib/python3*/site-packages/nvidia/*/lib > {LISTED}", "ldconfig"),
        why="TensorFlow asks the linker for CUDA's libraries, which came as wheels.",
    )
