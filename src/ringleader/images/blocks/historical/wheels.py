"""Wheels of frameworks as their projects handed them out then. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.images.blocks.historical.both import wheels_of
from ringleader.images.stage_steps import Half, Halves, PipInstall, Setting

if TYPE_CHECKING:
    from ringleader.images.blocks.tensorflow import Tensorflow
    from ringleader.images.blocks.torch import Torch

TORCH_PAGE = "https://download.pytorch.org/whl/torch_stable.html"
"""Where PyTorch before 1.10 has its wheels for other CUDA versions than PyPI's: a page of links, no index."""
FRAMEWORKS = 10


def tensorflow(block: Tensorflow, setting: Setting) -> Halves:
    """Return ``tensorflow-gpu``: until 2.1 GPUs had a package of their own."""
    name = "tensorflow-gpu" if block.gpu else "tensorflow"
    links = wheels_of(setting, block.wheels)
    pip = PipInstall(requirements=(f"{name}=={block.version}",), find_links=links, order=FRAMEWORKS)
    return Halves(runtime=Half(pip=(pip,)))


def torch(block: Torch, setting: Setting) -> Halves:
    """Return PyTorch and torchvision of the same variant."""
    local = f"+{block.variant}" if block.variant else ""
    wanted = [f"torch=={block.version}{local}"]
    if block.torchvision:
        wanted.append(f"torchvision=={block.torchvision}{local}")
    links = wheels_of(setting, block.wheels)
    options = ("--find-links", TORCH_PAGE) if block.variant and not links else ()
    pip = PipInstall(requirements=tuple(wanted), find_links=links, order=FRAMEWORKS, options=options)
    return Halves(runtime=Half(pip=(pip,)))
