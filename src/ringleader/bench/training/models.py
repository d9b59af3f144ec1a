"""The models of ``ringleader bench train`` in plain torch; ``model_table`` says what they are fed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from ringleader.bench.training.resnet import resnet18, resnet50
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


def build(plan: TrainingPlan) -> nn.Module:
    """Return the plan's model with weights of the plan's seed: the same on every rank and for every arm."""
    torch.manual_seed(plan.seed)
    if plan.model == "gpt":
        return Gpt(plan.seq_len)
    known: dict[str, Callable[[int], nn.Module]] = {
        "mlp": Mlp,
        "mnist": MnistNet,
        "resnet18": resnet18,
        "resnet50": resnet50,
    }
    return known[plan.model](plan.num_classes)


def loss_of(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy, of words as of classes."""
    return functional.cross_entropy(scores.flatten(0, -2), targets.flatten())
