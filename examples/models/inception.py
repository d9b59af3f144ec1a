"""Inception-v3 (Szegedy et al., 2015): blocks of parallel branches whose channels are put side by side.

27,161,264 parameters at 1,000 classes with the auxiliary head, 23,834,568 without.
"""

from __future__ import annotations

import torch
from torch import nn


class Unit(nn.Sequential):
    """Convolution without bias, normalization, ReLU. ``size`` is (height, width) or one number for both."""

    def __init__(
        self, inputs: int, outputs: int, size: int | tuple[int, int], *, stride: int = 1, same: bool = True
    ) -> None:
        height, width = (size, size) if isinstance(size, int) else size
        padding = (height // 2, width // 2) if same else 0
        super().__init__(
            nn.Conv2d(inputs, outputs, (height, width), stride, padding, bias=False),
            nn.BatchNorm2d(outputs, eps=0.001),
            nn.ReLU(inplace=True),
        )


class Branches(nn.Module):
    """Several ways from the same input, concatenated by channel."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, c, h, w) → (n, sum of the branches' channels, h', w')."""
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def pooled(inputs: int, outputs: int) -> nn.Sequential:
    """The branch that averages first."""
    return nn.Sequential(nn.AvgPool2d(3, 1, padding=1), Unit(inputs, outputs, 1))


def block_35(inputs: int, pool: int) -> Branches:
    """35x35 pixels: 1x1, 5x5 and two 3x3 (figure 5); 224 + ``pool`` channels out."""
    return Branches(
        Unit(inputs, 64, 1),
        nn.Sequential(Unit(inputs, 48, 1), Unit(48, 64, 5)),
        nn.Sequential(Unit(inputs, 64, 1), Unit(64, 96, 3), Unit(96, 96, 3)),
        pooled(inputs, pool),
    )


def shrink_35(inputs: int) -> Branches:
    """35x35 → 17x17 pixels (figure 10); ``inputs`` + 480 channels out."""
    return Branches(
        Unit(inputs, 384, 3, stride=2, same=False),
        nn.Sequential(Unit(inputs, 64, 1), Unit(64, 96, 3), Unit(96, 96, 3, stride=2, same=False)),
        nn.MaxPool2d(3, 2),
    )


def block_17(width: int) -> Branches:
    """17x17 pixels: 7x7 convolutions taken apart into 1x7 and 7x1 (figure 6); 768 channels in and out."""
    return Branches(
        Unit(768, 192, 1),
        nn.Sequential(Unit(768, width, 1), Unit(width, width, (1, 7)), Unit(width, 192, (7, 1))),
        nn.Sequential(
            Unit(768, width, 1),
            Unit(width, width, (7, 1)),
            Unit(width, width, (1, 7)),
            Unit(width, width, (7, 1)),
            Unit(width, 192, (1, 7)),
        ),
        pooled(768, 192),
    )


def shrink_17() -> Branches:
    """17x17 → 8x8 pixels; 768 → 1,280 channels."""
    return Branches(
        nn.Sequential(Unit(768, 192, 1), Unit(192, 320, 3, stride=2, same=False)),
        nn.Sequential(
            Unit(768, 192, 1),
            Unit(192, 192, (1, 7)),
            Unit(192, 192, (7, 1)),
            Unit(192, 192, 3, stride=2, same=False),
        ),
        nn.MaxPool2d(3, 2),
    )


def block_8(inputs: int) -> Branches:
    """8x8 pixels: 3x3 convolutions spread out into 1x3 beside 3x1 (figure 7); 2,048 channels out."""
    return Branches(
        Unit(inputs, 320, 1),
        nn.Sequential(Unit(inputs, 384, 1), Branches(Unit(384, 384, (1, 3)), Unit(384, 384, (3, 1)))),
        nn.Sequential(
            Unit(inputs, 448, 1),
            Unit(448, 384, 3),
            Branches(Unit(384, 384, (1, 3)), Unit(384, 384, (3, 1))),
        ),
        pooled(inputs, 192),
    )


class Auxiliary(nn.Module):
    """A second classifier on the 17x17 stage, which feeds gradients into the middle of the net."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        # 299 pixels leave 17x17 here and 5x5 after the pooling; smaller pictures are brought to 5x5.
        self.layers = nn.Sequential(
            nn.AdaptiveAvgPool2d(5), Unit(768, 128, 1), Unit(128, 768, 5, same=False), nn.Flatten()
        )
        self.fc = nn.Linear(768, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 768, h, w) → (n, classes)."""
        return self.fc(self.layers(x))


class InceptionV3(nn.Module):
    """The net of the paper's table 1; ``auxiliary_head=False`` leaves the second classifier out."""

    def __init__(self, classes: int = 1000, *, auxiliary_head: bool = True) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            Unit(3, 32, 3, stride=2, same=False),
            Unit(32, 32, 3, same=False),
            Unit(32, 64, 3),
            nn.MaxPool2d(3, 2),
            Unit(64, 80, 1),
            Unit(80, 192, 3, same=False),
            nn.MaxPool2d(3, 2),
        )
        self.to_17 = nn.Sequential(block_35(192, 32), block_35(256, 64), block_35(288, 64), shrink_35(288))
        self.at_17 = nn.Sequential(block_17(128), block_17(160), block_17(160), block_17(192))
        self.auxiliary = Auxiliary(classes) if auxiliary_head else None
        self.to_8 = nn.Sequential(shrink_17(), block_8(1280), block_8(2048))
        self.dropout = nn.Dropout()
        self.fc = nn.Linear(2048, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """(n, 3, h, w) → (n, classes); while training with the auxiliary head, a pair of such scores."""
        middle = self.at_17(self.to_17(self.stem(x)))
        scores = self.fc(self.dropout(self.to_8(middle).mean(dim=(2, 3))))
        if self.training and self.auxiliary is not None:
            return scores, self.auxiliary(middle)
        return scores
