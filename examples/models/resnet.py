"""Residual nets (He et al., 2015), version 1.5: a bottleneck shrinks the picture in its 3x3 convolution."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Convolution without bias (a normalization follows) that keeps height and width at stride 1."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Basic(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            conv(inputs, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            conv(width, width, 3),
            nn.BatchNorm2d(width),
        )
        self.shortcut = shortcut(inputs, width, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, inputs, h, w) → (n, width, h / stride, w / stride)."""
        return functional.relu(self.residual(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1 down, 3x3, 1x1 up to four times the width, beside a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.residual = nn.Sequential(
            conv(inputs, width, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            conv(width, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            conv(width, outputs, 1),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = shortcut(inputs, outputs, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, inputs, h, w) → (n, 4 * width, h / stride, w / stride)."""
        return functional.relu(self.residual(x) + self.shortcut(x))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Identity where the shapes agree, else a 1x1 projection."""
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """Four stages of blocks at 64, 128, 256 and 512 channels of width."""

    def __init__(
        self, block: type[Basic] | type[Bottleneck], depths: tuple[int, int, int, int], classes: int
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv(3, 64, 7, stride=2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        channels, blocks = 64, []
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            for index in range(depth):
                blocks.append(block(channels, width, stride=2 if stage > 0 and index == 0 else 1))
                channels = width * block.expansion
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(channels, classes)
        self.initialize()

    def initialize(self) -> None:
        """Keep the variance through ReLUs; start each block as its shortcut (Goyal et al., 2017)."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Basic | Bottleneck):
                nn.init.zeros_(module.residual[-1].weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 3, h, w) → (n, classes)."""
        return self.fc(self.blocks(self.stem(x)).mean(dim=(2, 3)))


def resnet18(classes: int = 1000) -> ResNet:
    """11,689,512 parameters at 1,000 classes."""
    return ResNet(Basic, (2, 2, 2, 2), classes)


def resnet50(classes: int = 1000) -> ResNet:
    """25,557,032 parameters at 1,000 classes."""
    return ResNet(Bottleneck, (3, 4, 6, 3), classes)


def resnet101(classes: int = 1000) -> ResNet:
    """44,549,160 parameters at 1,000 classes."""
    return ResNet(Bottleneck, (3, 4, 23, 3), classes)


def resnet152(classes: int = 1000) -> ResNet:
    """60,192,808 parameters at 1,000 classes."""
    return ResNet(Bottleneck, (3, 8, 36, 3), classes)
