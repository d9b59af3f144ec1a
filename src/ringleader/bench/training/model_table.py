"""The models of ``ringleader bench train`` and what they are fed, by name. Pure: nothing is built here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What is known of a model before it is built."""

    about: str
    unit: str
    """What its rates count: ``images``, ``tokens`` or ``samples``."""
    batch: int
    """Samples of a step unless ``--batch`` says otherwise."""
    data: tuple[str, ...] = ()
    """What ``--data DIR`` may hold for it: ``pictures``, ``mnist``; empty: synthetic alone."""
    image_size: int | None = None
    """Height and width in pixels unless ``--image-size`` says otherwise; ``None``: it takes no images."""
    smallest: int = 0
    """Least height and width that its layers accept."""
    resizable: bool = False
    """It takes images of any size from ``smallest`` on."""
    classes: int | None = None
    """Classes unless ``--num-classes`` says otherwise; ``None``: it tells no classes apart."""
    seq_len: int | None = None
    """Tokens of a sequence unless ``--seq-len`` says otherwise; ``None``: it takes no sequences."""


MODELS: dict[str, ModelFacts] = {
    "mlp": ModelFacts(
        about="seven linear layers 1024 wide, 25 MB of gradients", unit="samples", batch=64, classes=10
    ),
    "mnist": ModelFacts(
        about="the convolutional net of the MNIST example",
        unit="images",
        batch=64,
        data=("mnist",),
        image_size=28,
        smallest=28,
        classes=10,
    ),
    "resnet18": ModelFacts(
        about="ResNet-18",
        unit="images",
        batch=32,
        data=("pictures",),
        image_size=224,
        smallest=32,
        resizable=True,
        classes=1000,
    ),
    "resnet50": ModelFacts(
        about="ResNet-50 v1.5",
        unit="images",
        batch=32,
        data=("pictures",),
        image_size=224,
        smallest=32,
        resizable=True,
        classes=1000,
    ),
    "gpt": ModelFacts(
        about="a transformer of 4 layers, 256 wide, 4 heads, 1024 words", unit="tokens", batch=8, seq_len=128
    ),
}
