"""VGG-16 (Simonyan and Zisserman, 2014), configuration D: many parameters for little arithmetic."""

from __future__ import annotations

import torch
from torch import nn

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""(channels, number of 3x3 convolutions) of each stage; each ends with a 2x2 pooling."""


class VGG16(nn.Module):
    """138,357,544 parameters at 1,000 classes, of which 102,760,448 in the first linear layer."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for channels, depth in STAGES:
            for _ in range(depth):
                layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = channels
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        # 224 pixels leave 7x7 here; other sizes are averaged or repeated to 7x7, so that any size runs.
        self.pool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, classes),
        )
        for module in self.features:
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 3, h, w) → (n, classes)."""
        return self.classifier(self.pool(self.features(x)).flatten(1))
