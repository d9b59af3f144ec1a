"""The models of ``ringleader bench train`` in plain torch; `training_plan` says what they are fed."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from ringleader.bench.training.training_plan import TrainingPlan

WIDTH = 1024
"""Features of the MLP."""
WORDS = 1024
"""Vocabulary of the GPT."""


class MnistNet(nn.Sequential):
    """(n, 1, 28, 28) → (n, classes); 225,034 parameters at 10 classes."""

    def __init__(self, classes: int) -> None:
        super().__init__(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * 5 * 5, 128), nn.ReLU(), nn.Linear(128, classes),
        )  # fmt: skip


class Mlp(nn.Sequential):
    """(n, 1024) → (n, classes); 6,307,850 parameters at 10 classes."""

    def __init__(self, classes: int) -> None:
        layers: list[nn.Module] = []
        for _ in range(6):
            layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        super().__init__(*layers, nn.Linear(WIDTH, classes))


class TransformerBlock(nn.Module):
    """Attention on what came before, and two linear layers, each beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, tokens, width) → the same."""
        n, tokens, width = x.shape
        parts = self.queries_keys_values(self.norm_1(x)).view(n, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attended: torch.Tensor = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(n, tokens, width))
        out: torch.Tensor = x + self.mlp(self.norm_2(x))
        return out


class Gpt(nn.Module):
    """A small GPT: (n, tokens) of words → (n, tokens, words); 3,716,608 parameters at 128 tokens."""

    def __init__(self, tokens: int, *, width: int = 256, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, WORDS, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """(n, tokens) int64 → scores of the next word."""
        places = torch.arange(words.shape[1], device=words.device)
        scores: torch.Tensor = self.head(self.norm(self.blocks(self.words(words) + self.places(places))))
        return scores


# --- residual nets (He et al., 2015), version 1.5: a bottleneck shrinks the picture in its 3x3 convolution --


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
                nn.init.zeros_(cast(nn.BatchNorm2d, module.residual[-1]).weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 3, h, w) → (n, classes)."""
        return cast(torch.Tensor, self.fc(self.blocks(self.stem(x)).mean(dim=(2, 3))))


def resnet18(classes: int = 1000) -> ResNet:
    """11,689,512 parameters at 1,000 classes."""
    return ResNet(Basic, (2, 2, 2, 2), classes)


def resnet50(classes: int = 1000) -> ResNet:
    """25,557,032 parameters at 1,000 classes."""
    return ResNet(Bottleneck, (3, 4, 6, 3), classes)


def build(plan: TrainingPlan) -> nn.Module:
    """Return the plan's model with weights of the plan's seed: the same on every rank and for every arm."""
    torch.manual_seed(plan.seed)
    known: dict[str, Callable[[int], nn.Module]] = {
        "mlp": Mlp,
        "mnist": MnistNet,
        "resnet18": resnet18,
        "resnet50": resnet50,
    }
    return Gpt(plan.seq_len) if plan.model == "gpt" else known[plan.model](plan.num_classes)


def loss_of(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy, of words as of classes."""
    return functional.cross_entropy(scores.flatten(0, -2), targets.flatten())
