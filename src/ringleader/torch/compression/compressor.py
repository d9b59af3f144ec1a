"""What a compressor is, the one that leaves everything as it is, and what keeps residuals.

Names are Horovod's.
"""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """The interface: compress before the exchange, decompress after it.

    Your own class with these two static methods works in `DistributedOptimizer` too. What ``compress``
    returns is summed over the ranks, so it must have the same shape and type on all of them.
    """

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor for the wire and what `decompress` needs."""
        raise TypeError("a compressor must define compress")

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor in its first type."""
        raise TypeError("a compressor must define decompress")


class NoneCompressor(Compressor):
    """Leave everything as it is."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor itself."""
        return tensor


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


def residual_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which residuals of such gradients are kept: half types would lose some."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
