"""Image classifiers in plain torch, written to be read; each takes (n, 3, height, width) to (n, classes)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from models.inception import InceptionV3
from models.resnet import resnet18, resnet50, resnet101, resnet152
from models.vgg import VGG16


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How to build a model, and the pictures it was made for."""

    build: Callable[[int], nn.Module]
    """Number of classes → model."""
    image_size: int = 224
    """Height and width in pixels of the published results."""
    smallest: int = 32
    """Least height and width that the layers accept."""


MODELS: dict[str, Architecture] = {
    "resnet18": Architecture(build=resnet18),
    "resnet50": Architecture(build=resnet50),
    "resnet101": Architecture(build=resnet101),
    "resnet152": Architecture(build=resnet152),
    "vgg16": Architecture(build=VGG16),
    "inception3": Architecture(build=InceptionV3, image_size=299, smallest=75),
}
"""tf_cnn_benchmarks' name → architecture."""
