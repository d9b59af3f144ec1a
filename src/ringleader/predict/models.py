"""Models by name: parameters and multiply-adds of each layer, from the shapes that their papers give.

Parameters are those of weights and biases, without batch normalization's; a gradient has one number for each.
ResNet: arXiv 1512.03385, table 1. VGG: arXiv 1409.1556, table 1 D. AlexNet: NIPS 2012, with its two groups.
Inception V3 (arXiv 1512.00567) and BERT-Large (arXiv 1810.04805) are given by their totals, spread evenly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Model:
    """What a gradient exchange needs to know of a network."""

    name: str
    layers: tuple[tuple[int, float], ...]
    """Parameters, and the share of the backward pass, of each layer in the order of the forward pass.

    The share is that of multiply-adds.
    """
    source: str

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(count for count, _ in self.layers)


_Shape = tuple[int, float]
"""Parameters, and multiply-adds of one sample."""


def _convolution(kernel: int, into: int, out: int, width: int) -> _Shape:
    """``width``: of the output, in pixels; it is square."""
    weights = kernel * kernel * into * out
    return weights + out, weights * width * width


def _dense(into: int, out: int) -> _Shape:
    return into * out + out, into * out


def _resnet(*blocks: int) -> list[_Shape]:
    shapes = [_convolution(7, 3, 64, 112)]
    into = 64
    for stage, count in enumerate(blocks):
        middle, width = 64 << stage, 56 >> stage
        for block in range(count):
            parts = [
                _convolution(1, into, middle, width),
                _convolution(3, middle, middle, width),
                _convolution(1, middle, 4 * middle, width),
                _convolution(1, into, 4 * middle, width),  # the first block of a stage has a fourth
            ][: 3 if block else 4]
            into = 4 * middle
            shapes.append((sum(count for count, _ in parts), sum(work for _, work in parts)))
    return [*shapes, _dense(2048, 1000)]


def _vgg16() -> list[_Shape]:
    into, shapes = 3, list[_Shape]()
    for stage, (out, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
        for _ in range(count):
            shapes.append(_convolution(3, into, out, 224 >> stage))
            into = out
    return [*shapes, _dense(25088, 4096), _dense(4096, 4096), _dense(4096, 1000)]


def _alexnet() -> list[_Shape]:
    sizes = ((11, 3, 96, 55), (5, 48, 256, 27), (3, 256, 384, 13), (3, 192, 384, 13), (3, 192, 256, 13))
    dense = (_dense(9216, 4096), _dense(4096, 4096), _dense(4096, 1000))
    return [*(_convolution(*size) for size in sizes), *dense]


def _bert_large() -> list[_Shape]:
    """Embeddings, encoders, head."""
    return [(31_782_912, 0.02), *[(12_596_224, 1.0)] * 24, (1_050_624, 0.02)]


_RESNET = "shapes of arXiv 1512.03385, table 1"
_MODELS: dict[str, tuple[str, Callable[[], list[_Shape]]]] = {
    "alexnet": ("shapes of Krizhevsky et al., NIPS 2012, with its two groups", _alexnet),
    "bert-large": ("arXiv 1810.04805, totals", _bert_large),
    "inception-v3": ("arXiv 1512.00567, total; spread evenly", lambda: [(23_800_000 // 20, 1.0)] * 20),
    "resnet-50": (_RESNET, lambda: _resnet(3, 4, 6, 3)),
    "resnet-101": (_RESNET, lambda: _resnet(3, 4, 23, 3)),
    "resnet-152": (_RESNET, lambda: _resnet(3, 8, 36, 3)),
    "vgg-16": ("shapes of arXiv 1409.1556, table 1 D", _vgg16),
}
"""Name → source, and the layers in the order of the forward pass."""
NAMES = tuple(_MODELS)
"""Names of all models."""


def model(name: str) -> Model:
    """Return a model; KeyError where there is none of this name."""
    source, shapes_of = _MODELS[name]
    shapes = shapes_of()
    total = sum(work for _, work in shapes)
    layers = tuple((parameters, work / total) for parameters, work in shapes)
    return Model(name=name, layers=layers, source=source)
