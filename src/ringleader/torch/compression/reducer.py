"""Gradients over the ranks when what travels is not the gradient itself: reducers, and residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ringleader.adapters.compression import Compressor
from ringleader.engine.group_engine import Engine
from ringleader.torch.engine_operations import reduce_all, reduction
from ringleader.torch.gradient_config import GradientConfig


class Reducer:
    """Reduces gradients over the ranks. What it remembers of parameters outlives the engine's memory."""

    def begin(self, engine: Engine, config: GradientConfig, parameters: Sequence[torch.Tensor]) -> None:
        """Reduce the gradients of these parameters from now on; forget all others.

        `ValueError` where it has no such reduction.
        """
        self._engine, self._config = engine, config

    def reduce(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Replace the contents of the parameters' gradients by the reduction over the ranks. Collective."""
        raise NotImplementedError


class CompressorReducer(Reducer):
    """Sends every gradient as the script's own compressor makes it."""

    def __init__(self, compressor: Compressor | type[Compressor]) -> None:
        """Take what has ``compress`` and ``decompress``, as `Compressor` describes it."""
        self._compressor = compressor

    def reduce(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Compress, reduce what that gives, decompress."""
        wanted = self._config
        small = [self._compressor.compress(gradient) for gradient in gradients]
        works = [
            reduction(
                tensor.contiguous().clone() if tensor is gradient else tensor.contiguous(),
                f"{wanted.serial}.gradient.{at}",
                op=wanted.op,
                prescale=wanted.prescale,
                postscale=wanted.postscale,
            )
            for at, (gradient, (tensor, _context)) in enumerate(zip(gradients, small, strict=True))
        ]
        reduce_all(self._engine, works)
        for gradient, work, (tensor, context) in zip(gradients, works, small, strict=True):
            gradient.copy_(self._compressor.decompress(work.out.view(tensor.shape), context))


class ErrorFeedbackCompressor(Compressor):
    """A compression that keeps a residual per parameter; only `DistributedOptimizer` can use it.

    Error feedback: what a step does not send of a gradient is kept, and added to the next step's. What was
    sent in all steps and what is still kept add up to the sum of the gradients (Stich, Cordonnier and Jaggi,
    "Sparsified SGD with memory", NeurIPS 2018).
    """

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Refuse: a single operation has nowhere to keep a residual."""
        raise ValueError("this compression keeps a residual per gradient: pass it to DistributedOptimizer")

    def reducer(self) -> Reducer:
        """Return what exchanges the gradients of one optimizer, and has the residuals."""
        raise NotImplementedError


def residual_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which residuals of such gradients are kept: half types would lose some."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
