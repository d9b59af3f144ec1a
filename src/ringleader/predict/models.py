"""Models by name: parameters and multiply-adds of each layer, from the shapes that their papers give.

Parameters are those of weights and biases, without batch normalisation's; a gradient has one number for each.
ResNet: arXiv 1512.03385, table 1. VGG: arXiv 1409.1556, table 1 D. AlexNet: NIPS 2012, with its two groups.
Inception V3 (arXiv 1512.00567) and BERT-Large (arXiv 1810.04805) are given by their totals, spread evenly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer, or several that are alike."""

    name: str
    parameters: int
    work: float
    """Share of the model's backward pass: multiply-adds over all of them; all layers add up to 1."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """What a gradient exchange needs to know of a network."""

    name: str
    layers: tuple[Layer, ...]
    """In the order of the forward pass."""
    source: str

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(layer.parameters for layer in self.layers)


_Shape = tuple[str, int, float]
"""Name, parameters, multiply-adds of one sample."""


def _convolution(name: str, kernel: int, into: int, out: int, width: int) -> _Shape:
    """``width``: of the output, in pixels; it is square."""
    weights = kernel * kernel * into * out
    return name, weights + out, weights * width * width


def _dense(name: str, into: int, out: int) -> _Shape:
    return name, into * out + out, into * out


def _model(name: str, shapes: list[_Shape], source: str) -> Model:
    total = sum(work for _, _, work in shapes)
    layers = tuple(Layer(name=n, parameters=p, work=w / total) for n, p, w in shapes)
    return Model(name=name, layers=layers, source=source)


def _resnet(name: str, blocks: tuple[int, int, int, int]) -> Model:
    shapes = [_convolution("conv1", 7, 3, 64, 112)]
    into = 64
    for stage, count in enumerate(blocks):
        middle, width = 64 << stage, 56 >> stage
        for block in range(count):
            parts = [
                _convolution("", 1, into, middle, width),
                _convolution("", 3, middle, middle, width),
                _convolution("", 1, middle, 4 * middle, width),
            ]
            if block == 0:
                parts.append(_convolution("", 1, into, 4 * middle, width))
            into = 4 * middle
            shapes.append(
                (f"conv{stage + 2}_{block + 1}", sum(p[1] for p in parts), sum(p[2] for p in parts))
            )
    return _model(name, [*shapes, _dense("fc", 2048, 1000)], "shapes of arXiv 1512.03385, table 1")


def _vgg16() -> Model:
    into, shapes = 3, list[_Shape]()
    for stage, (out, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
        for number in range(count):
            shapes.append(_convolution(f"conv{stage + 1}_{number + 1}", 3, into, out, 224 >> stage))
            into = out
    shapes += [_dense("fc6", 25088, 4096), _dense("fc7", 4096, 4096), _dense("fc8", 4096, 1000)]
    return _model("vgg-16", shapes, "shapes of arXiv 1409.1556, table 1 D")


def _alexnet() -> Model:
    shapes = [
        _convolution("conv1", 11, 3, 96, 55),
        _convolution("conv2", 5, 48, 256, 27),
        _convolution("conv3", 3, 256, 384, 13),
        _convolution("conv4", 3, 192, 384, 13),
        _convolution("conv5", 3, 192, 256, 13),
        _dense("fc6", 9216, 4096),
        _dense("fc7", 4096, 4096),
        _dense("fc8", 4096, 1000),
    ]
    return _model("alexnet", shapes, "shapes of Krizhevsky et al., NIPS 2012, with its two groups")


def _even(name: str, parameters: int, count: int, source: str) -> Model:
    part = parameters // count
    return _model(name, [(f"layer{i + 1}", part, 1.0) for i in range(count)], source)


def _bert_large() -> Model:
    layers: list[_Shape] = [(f"encoder{i + 1}", 12_596_224, 1.0) for i in range(24)]
    embeddings: _Shape = ("embeddings", 31_782_912, 0.02)
    return _model("bert-large", [embeddings, *layers, ("head", 1_050_624, 0.02)], "arXiv 1810.04805, totals")


_BUILDERS: dict[str, Callable[[], Model]] = {
    "alexnet": _alexnet,
    "bert-large": _bert_large,
    "inception-v3": lambda: _even("inception-v3", 23_800_000, 20, "arXiv 1512.00567, total; spread evenly"),
    "resnet-50": lambda: _resnet("resnet-50", (3, 4, 6, 3)),
    "resnet-101": lambda: _resnet("resnet-101", (3, 4, 23, 3)),
    "resnet-152": lambda: _resnet("resnet-152", (3, 8, 36, 3)),
    "vgg-16": _vgg16,
}
NAMES = tuple(_BUILDERS)
"""Names of all models."""


def model(name: str) -> Model:
    """Return a model; KeyError where there is none of this name."""
    return _BUILDERS[name]()
